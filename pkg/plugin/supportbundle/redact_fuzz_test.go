package supportbundle

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzRedact puts a secret on a line of its own, as logs and manifests have them, between any text. It
// must not be left.
func FuzzRedact(f *testing.F) {
	forms := []string{
		"Authorization: Bearer %s", "--token=%s", `{"password":"%s","node":"edge-01"}`, `{"msg":"got {\"clientSecret\":\"%s\"}"}`, "AWS_SECRET_ACCESS_KEY=%s",
		"proxy https://me:%s@proxy.example:3128/", "client-key-data: %s", "passphrase: '%s'", "apiKey = %s", "-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----",
		`"password":"a\"%s"`, `msg="password=\"%s`, "password: |-\n  a\n  %s", "password:\n  %s", "token:\n\"password\": \"%s\"",
	}
	const secret = "s3cr3ts3cr3ts3cr3t"
	for i := range forms {
		f.Add("level=info\n", uint8(i), "\nblock 10.20.0.0-29 of pool main on edge-01")
	}
	f.Add("tokenRef:", uint8(2), "")
	f.Add("-----BEGIN X-----", uint8(0), "-----END X-----")
	f.Add(`{"token":`, uint8(4), `}`)
	f.Fuzz(func(t *testing.T, before string, form uint8, after string) {
		if strings.Contains(before+after, "s3cr3t") {
			return
		}
		text := before + "\n" + fmt.Sprintf(forms[int(form)%len(forms)], secret) + "\n" + after
		if got := redact(text); strings.Contains(got, "s3cr3t") {
			t.Errorf("%q\nleft %q", text, got)
		}
	})
}
