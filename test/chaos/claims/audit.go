package claims

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// AuditPolicy logs what a history needs: every write of a block with its response, and every
// write of a CiliumNode other than to its status. A request is logged when it arrives and
// again when it is answered.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: RequestResponse
  resources: [{group: cilium-pool.io, resources: [podipblocks]}]
- level: Request
  resources: [{group: cilium.io, resources: [ciliumnodes]}]
- level: None
`

// NodeAuditPolicy is AuditPolicy for kubernetes mode, where Nodes assign blocks to agents and
// CiliumNodes do not matter.
var NodeAuditPolicy = strings.Replace(AuditPolicy, "{group: cilium.io, resources: [ciliumnodes]}", `{group: "", resources: [nodes]}`, 1)

// entry is a line of the audit log (audit.k8s.io/v1 Event).
type entry struct {
	AuditID   string    `json:"auditID"`
	Stage     string    `json:"stage"`
	Verb      string    `json:"verb"`
	Received  time.Time `json:"requestReceivedTimestamp"`
	Stamp     time.Time `json:"stageTimestamp"`
	UserAgent string    `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Status struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	} `json:"responseStatus"`
	Request  json.RawMessage `json:"requestObject"`
	Response json.RawMessage `json:"responseObject"`
}

// call is a request with its response. A zero response means that none was logged.
type call struct {
	entry
	answered time.Time
}

// readCalls joins the lines of each request, in the order of arrival. It ignores a line that
// is truncated because the API server was killed.
func readCalls(log io.Reader) ([]*call, error) {
	var out []*call
	byID := map[string]*call{}
	lines := bufio.NewReaderSize(log, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		var e entry
		if json.Unmarshal(line, &e) == nil && e.AuditID != "" {
			out = join(out, byID, e)
		}
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("read audit log: %w", err)
		}
	}
}

func join(out []*call, byID map[string]*call, e entry) []*call {
	c := byID[e.AuditID]
	if c == nil {
		c = &call{entry: e}
		byID[e.AuditID] = c
		out = append(out, c)
	}
	if e.Stage == "ResponseComplete" || e.Stage == "Panic" {
		c.entry = e
		c.answered = e.Stamp
	}
	return out
}

// outcome returns the outcome of the request; "" if it changed nothing and shows nothing about
// a block.
func (c *call) outcome(refusal string) Outcome {
	switch code := c.Status.Code; {
	case c.answered.IsZero(), code == 0, code >= 500:
		return Unknown
	case code < 300:
		return Done
	case refusal != "" && c.Status.Reason == refusal:
		return Refused
	}
	return ""
}
