package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestShareString(t *testing.T) {
	tests := map[Share]string{0: "0", 1: "0.000001", 850_000: "0.85", 100_000: "0.1", 999_999: "0.999999", Whole: "1", 1_500_000: "1.5"}
	for share, want := range tests {
		expect.Equal(t, share.String(), want, "%d:", uint32(share))
	}
}

func TestShareTextIsADecimalFraction(t *testing.T) {
	for text, want := range map[string]Share{"0": 0, "1": Whole, "1.0": Whole, "0.85": 850_000, ".5": 500_000, "0.3333335": 333_334, "0.9999994": 999_999} {
		var got Share
		err := got.UnmarshalText([]byte(text))
		expect.That(t, err == nil && got == want, "%q: %v, %v, want %v", text, got, err, want)
	}
	for _, text := range []string{"", "85", "-0.1", "1.0000001", "NaN", "0.5x", "0.12345678x", "1/2", "0.+5"} {
		got := Share(7)
		expect.That(t, got.UnmarshalText([]byte(text)) != nil && got == 7, "%q is read as %v", text, got)
	}
}

func TestShareOfIsRoundedDown(t *testing.T) {
	tests := []struct {
		share Share
		n     int
		want  int
	}{
		{850_000, 20, 17}, {850_000, 17, 14}, {850_000, 14, 11}, {850_000, 1, 0}, {850_000, 0, 0},
		{0, 20, 0}, {Whole, 20, 20}, {850_000, 100_000_000, 85_000_000},
	}
	for _, tt := range tests {
		expect.Equal(t, tt.share.Of(tt.n), tt.want, "%s of %d:", tt.share, tt.n)
	}
}

func TestSettingsAreTheDefaultsUntilConfigured(t *testing.T) {
	g := newRig(t)
	got := g.View().Settings()
	expect.That(t, got == DefaultSettings(), "got %+v, want the defaults", got)
	s := Settings{Threshold: 500_000, Population: 3, Bound: 1000, Expectation: true, ExpectedInterval: 10, ExpectationUpdate: 5000, DoubledLease: true}
	before := g.View()
	g.Configure(s)
	expect.Equal(t, g.View().Settings(), s, "got")
	got = before.Settings()
	expect.That(t, got == DefaultSettings(), "a view from before: %+v, want the defaults", got)
}

// An entry of the log is never refused, so what no setting can mean counts as what is nearest.
func TestConfigureClampsSettings(t *testing.T) {
	g := newRig(t)
	g.Configure(Settings{Threshold: Whole + 1, Bound: -1, ExpectationUpdate: -1})
	expect.Equal(t, g.View().Settings(), (Settings{Threshold: Whole}), "got")
	expect.OKf(t, expect.Err(Thaw(g.Freeze())), "thaw")
}

func TestConfigureAppliesAShorterUpdateIntervalAtOnce(t *testing.T) {
	g := newRig(t)
	for i := range 5 {
		g.register(instance(keyed(i), Up, 100))
	}
	s := DefaultSettings()
	s.ExpectationUpdate = 60_000
	g.Configure(s)
	g.pass(59_999)
	g.Advance(g.now)
	g.wantClients("before a minute", 6)
	g.pass(1)
	g.Advance(g.now)
	g.wantClients("after a minute", 5+1) // 5 is not above 0.85 of 6
	s.SelfPreservation = false
	g.Configure(s)
	g.pass(60_000)
	g.Advance(g.now)
	g.wantClients("after another, self-preservation off", 5)
}
