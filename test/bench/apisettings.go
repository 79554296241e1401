package main

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// settingsOf is the prefix of the names of measures that compare settings of the API server
// and of clients; the task's name follows.
const settingsOf = "settings of "

// apiSetting is a setting of the API server, or of the operator's client, that may matter
// for this operator.
type apiSetting struct {
	// name is the setting as passed to the program; "": the defaults.
	name         string
	controlPlane bed.ControlPlane
	env          []string // of the operator
	// account: the operator runs as a ServiceAccount, not as an administrator.
	account bool
	// took reports whether a run's values show that the setting had an effect; nil: the
	// values cannot show it.
	took func(values map[string]float64) bool
}

const (
	defaultSetting = "defaults"
	asAccount      = "a ServiceAccount"
	allowCBOR      = "KUBE_FEATURE_ClientsAllowCBOR=true"
	preferCBOR     = "KUBE_FEATURE_ClientsPreferCBOR=true"
	serveCBOR      = "--feature-gates=CBORServingAndStorage=true"
	noFairness     = "--enable-priority-and-fairness=false"
)

// Values that show the effect of a setting.
const (
	cachedBuiltIns  = "watch caches of built-in kinds"
	cachedCustoms   = "watch caches of custom resources"
	streamedLists   = "streamed lists"
	dispatched      = "dispatched requests"
	limitedRequests = "limited requests"
	queueSeconds    = "queues s"
	rejected        = "rejected requests"
	servedCBOR      = "CBOR"
)

// apiSettings returns the settings to compare, the defaults first.
func apiSettings() []apiSetting {
	none := func(value string) func(map[string]float64) bool {
		return func(values map[string]float64) bool { return values[value] == 0 }
	}
	some := func(value string) func(map[string]float64) bool {
		return func(values map[string]float64) bool { return values[value] > 0 }
	}
	of := func(arg string, took func(map[string]float64) bool) apiSetting {
		return apiSetting{name: arg, controlPlane: bed.ControlPlane{Args: []string{arg}}, took: took}
	}
	gogc := "GOGC=200"
	return []apiSetting{
		{name: defaultSetting},
		of("--watch-cache=false", func(values map[string]float64) bool { return values[cachedBuiltIns]+values[cachedCustoms] == 0 }),
		of("--watch-cache-sizes=nodes#0,pods#0", none(cachedBuiltIns)),
		of("--watch-cache-sizes=ciliumnodes.cilium.io#0,podipblocks.cilium-pool.io#0", none(cachedCustoms)),
		of("--feature-gates=ConsistentListFromCache=false", nil),
		of("--feature-gates=WatchList=false", none(streamedLists)),
		{name: "KUBE_FEATURE_WatchListClient=false", env: []string{"KUBE_FEATURE_WatchListClient=false"}, took: none(streamedLists)},
		of(serveCBOR, some(servedCBOR)),
		{name: strings.Join([]string{serveCBOR, allowCBOR, preferCBOR}, " "), controlPlane: bed.ControlPlane{Args: []string{serveCBOR}},
			env: []string{allowCBOR, preferCBOR}, took: some(servedCBOR)},
		of(noFairness, none(dispatched)),
		{name: asAccount, account: true, took: some(limitedRequests)},
		{name: asAccount + " " + noFairness, account: true, controlPlane: bed.ControlPlane{Args: []string{noFairness}}, took: none(dispatched)},
		{name: gogc, controlPlane: bed.ControlPlane{Env: []string{gogc}}},
	}
}

// contender returns this operator with the setting.
func (s apiSetting) contender() contender {
	c := operator()
	c.name, c.settings, c.controlPlane, c.env = s.name, "", s.controlPlane, s.env
	if s.account {
		argv := c.argv
		c.argv = func(st *bed.Stage, w bed.World) ([]string, error) {
			args, err := argv(st, w)
			return append(args, "--kubeconfig="+st.AccountKubeconfig()), err // the last flag wins
		}
	}
	return c
}

// settingMeasures returns a cold start and a restart of this operator with each setting.
func settingMeasures(settings []apiSetting) []measure {
	measures := []measure{cold(false), restart(false)}
	for i := range measures {
		m := &measures[i]
		m.name, m.rounds, m.contenders, m.run = settingsOf+m.name, 1, nil, withEffects(settings, m.run)
		for _, s := range settings {
			m.contenders = append(m.contenders, s.contender())
		}
	}
	return measures
}

// withEffects runs a task and records the effects of the setting during the task.
func withEffects(settings []apiSetting, task func(context.Context, *run) error) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		i := slices.IndexFunc(settings, func(s apiSetting) bool { return s.name == r.c.name })
		if settings[i].account {
			if err := r.MakeAccount(ctx); err != nil {
				return err
			}
		}
		before, err := r.Effects(ctx)
		if err != nil {
			return err
		}
		if err := task(ctx, r); err != nil {
			return err
		}
		after, err := r.Effects(ctx)
		if err != nil {
			return err
		}
		r.noteEffects(after.Sub(before))
		return nil
	}
}

func (r *run) noteEffects(e bed.Effects) {
	cached := func(resources ...string) float64 {
		n := 0
		for _, resource := range resources {
			if slices.Contains(e.WatchCaches, resource) {
				n++
			}
		}
		return float64(n)
	}
	sum := func(of map[string]float64) float64 {
		all := 0.0
		for _, n := range of {
			all += n
		}
		return all
	}
	r.values[cachedBuiltIns], r.values[cachedCustoms] = cached("nodes", "pods"), cached("ciliumnodes", "podipblocks")
	r.values[streamedLists], r.values[dispatched], r.values[limitedRequests] = sum(e.Streamed), sum(e.Dispatched), e.Limited()
	r.values[queueSeconds], r.values[rejected] = e.Waited, e.Rejected
	r.values[servedCBOR] = 0
	if e.CBOR {
		r.values[servedCBOR] = 1
	}
}

// settings measures all settings. If the API server does not start with a setting, or the
// operator does not complete its task, the row says so. The defaults must work.
func (b *bench) settings(ctx context.Context) error {
	settings, patience := apiSettings(), b.patience
	defer func() { b.patience = patience }()
	for _, m := range settingMeasures(settings) {
		m = b.adapted(m)
		b.patience = patience
		var defaults map[string]float64
		for round := range cmp.Or(b.rounds, m.rounds) {
			for i, c := range m.contenders {
				if b.skips(c, round) {
					continue
				}
				s, err := b.once(ctx, m, c, b.nodes, round)
				switch {
				case err != nil && (i == 0 || ctx.Err() != nil):
					return err
				case err != nil:
					s = sample{Measure: m.name, Contender: c.name, Nodes: b.nodes, Round: round, Note: "failed: " + reason(err)}
				case i == 0:
					defaults = s.Values
					b.patience = min(patience, enough(defaults["rest s"]))
				default:
					s.Note = settings[i].note(s.Values, defaults)
				}
				if s.Note != "" {
					b.say("%s, %s: %s", m.name, c.name, s.Note)
				}
				b.results.Samples = append(b.results.Samples, s)
			}
		}
		if err := b.save(); err != nil {
			return err
		}
	}
	return nil
}

// note describes what a run's values, compared with those of the defaults, show about the
// setting's effect; "" if it had one, or if the values cannot show it.
func (s apiSetting) note(values, defaults map[string]float64) string {
	switch {
	case s.took == nil:
		return ""
	case !s.took(values):
		return "ignored"
	case len(defaults) > 0 && s.took(defaults):
		return "whether it has an effect is not known: the API server shows the same with the defaults"
	}
	return ""
}

// enough returns how long a run with a setting may take, including the start of the control
// plane, if with the defaults the operator is idle after that many seconds.
func enough(seconds float64) time.Duration {
	return time.Minute + 5*time.Duration(seconds*float64(time.Second))
}

// reason summarizes in one line an error that includes the end of a log: the last error in
// the log, or else the first line of the error.
func reason(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for _, line := range slices.Backward(lines) {
		if text := loggedError(line); text != "" {
			return text
		}
	}
	return lines[0]
}

// loggedError returns the error in a log line of the operator (JSON), of klog, or in what a
// command prints when it ends; "" if there is none.
func loggedError(line string) string {
	var entry struct {
		Message string `json:"msg"`
		Error   string `json:"error"`
	}
	if json.Unmarshal([]byte(line), &entry) == nil && entry.Error != "" {
		return entry.Message + ": " + entry.Error
	}
	if _, quoted, ok := strings.Cut(line, ` err="`); ok {
		if prefix, err := strconv.QuotedPrefix(`"` + quoted); err == nil {
			text, _ := strconv.Unquote(prefix) // it is a quoted string
			return text
		}
	}
	text, ok := strings.CutPrefix(line, "Error: ")
	if !ok {
		return ""
	}
	return text
}
