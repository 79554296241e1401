package invariant

import (
	"maps"
	"time"
)

// Judge checks rules 1, 2, 3 and 7 on versions passed to it in the order of storage. It is not safe
// for concurrent use.
type Judge struct {
	model    *model
	cooldown time.Duration
	stats    Stats
}

// NewJudge returns a Judge without objects. A block must have cooled down for cooldown
// before it is deleted; zero: for any time.
func NewJudge(cooldown time.Duration) *Judge {
	return &Judge{model: newModel(), cooldown: cooldown, stats: Stats{Versions: map[Kind]int{}}}
}

// Step judges a version and makes it the state. Change.Old is ignored.
func (j *Judge) Step(c Change) []Violation {
	c.Old = j.model.objects[c.Kind][c.Name]
	found := j.model.judge(c, watched, j.cooldown)
	j.Take(c)
	return found
}

// Take makes a version the state without judging it, for writers to whom the rules do not
// apply.
func (j *Judge) Take(c Change) {
	c.Old = j.model.objects[c.Kind][c.Name]
	j.stats.Versions[c.Kind]++
	j.stats.count(j.model, c)
	j.model.apply(c)
}

// Stats returns the counts so far.
func (j *Judge) Stats() Stats {
	s := j.stats
	s.Versions = maps.Clone(s.Versions)
	return s
}
