package access

import (
	"net/netip"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestParseTargetReadsTargetsAndNamesMistakes(t *testing.T) {
	for _, tc := range []struct {
		text string
		in   string // an address and port that it contains
		out  string
		err  string
	}{
		{text: "10.0.0.0/8:*", in: "10.1.2.3:22", out: "11.0.0.1:22"},
		{text: "10.0.0.0/8:8080", in: "10.1.2.3:8080", out: "10.1.2.3:22"},
		{text: "10.0.0.7:80", in: "10.0.0.7:80", out: "10.0.0.8:80"},
		{text: "[fd00::/8]:443", in: "[fd12::1]:443", out: "[fe12::1]:443"},
		{text: "[fd00::1]:*", in: "[fd00::1]:1", out: "[fd00::2]:1"},
		{text: "10.0.0.0/8", err: "no port"},
		{text: "10.0.0.0/8:0", err: "no port from 1 to 65535"},
		{text: "10.0.0.0/99:80", err: "does not begin with a CIDR"},
		{text: "example.com:80", err: "does not begin with a CIDR"},
	} {
		target, err := ParseTarget(tc.text)
		if tc.err != "" {
			expect.ErrorSays(t, err, tc.err, "%s:", tc.text)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		again, err := ParseTarget(target.String())
		expect.That(t, err == nil && again == target, "%s is written %s, which is read as %v, %v", tc.text, target, again, err)
		in, out := netip.MustParseAddrPort(tc.in), netip.MustParseAddrPort(tc.out)
		expect.That(t, target.Contains(in) && !target.Contains(out), "%s contains %s: %v, and %s: %v", tc.text, in, target.Contains(in), out, target.Contains(out))
		p := Compile("", &Role{Name: "r", Rules: rules(t, "check-target "+tc.text+" probe")})
		expect.That(t, p.Allows(ToProbe(tc.in)) && !p.Allows(ToProbe(tc.out)), "a rule with %s decides otherwise", tc.text)
	}
}

func TestRuleThatNamesNoTargetIsRefused(t *testing.T) {
	for _, text := range []string{"check-target 10.0.0.0/8 probe", "check-target example.com:80 probe", "check-target {app}:80 probe", "check-target * probe"} {
		_, err := ParseRule(text)
		expect.That(t, err != nil, "%q is taken", text)
	}
	var none *Policy
	expect.That(t, !none.Allows(ToProbe("10.0.0.1:80")), "no policy lets checks look at something")
}
