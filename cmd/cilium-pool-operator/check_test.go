package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCheckExitCodes(t *testing.T) {
	nowhere := "--kubeconfig=" + kubeconfig(t, closedPort(t))
	tests := map[string]struct {
		args           []string
		code           int
		stdout, stderr string // texts that they must contain; "": empty
	}{
		"help":                {args: []string{"--help"}, code: 0, stdout: "Exit codes: 0 nothing is wrong, 1 something is, 2 wrong command line"},
		"unknown flag":        {args: []string{"--nonsense"}, code: 2, stderr: "unknown flag: --nonsense\nSee cilium-pool-operator check --help."},
		"unexpected argument": {args: []string{"now"}, code: 2, stderr: `unexpected argument "now"`},
		"output":              {args: []string{"-o", "yaml"}, code: 2, stderr: "--output is yaml: must be text or json"},
		"fail on":             {args: []string{"--fail-on=info"}, code: 2, stderr: "--fail-on is info: must be warning or error"},
		"again":               {args: []string{"--again=0s"}, code: 2, stderr: "--again is 0s: must be between 1s and 1h0m0s"},
		"watch for":           {args: []string{"--watch-for=-1s"}, code: 2, stderr: "--watch-for is -1s"},
		"stuck after":         {args: []string{"--stuck-after=25h"}, code: 2, stderr: "--stuck-after is 25h0m0s"},
		"agent selector":      {args: []string{"--agent-selector=a=b=c"}, code: 2, stderr: "--agent-selector is a=b=c: must be a label selector"},
		"unreachable":         {args: []string{nowhere}, code: 2, stderr: "the cluster was not audited: cannot read from the API server at http://127.0.0.1"},
		"no such context":     {args: []string{nowhere, "--context=prod"}, code: 2, stderr: `no API server to talk to: context "prod" does not exist`},
		"no such file":        {args: []string{"--kubeconfig=none"}, code: 2, stderr: "give --kubeconfig or --context"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := inTime(t, func() int { return run(t.Context(), append([]string{"check"}, test.args...), &stdout, &stderr) })
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for got, want := range map[*bytes.Buffer]string{&stdout: test.stdout, &stderr: test.stderr} {
				if !strings.Contains(got.String(), want) || (want == "" && got.Len() > 0) {
					t.Errorf("wrote %q, want %q in it", got, want)
				}
			}
		})
	}
}
