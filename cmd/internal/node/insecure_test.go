package node

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestMetricNamesTheProtectionsThatAreMissingNow(t *testing.T) {
	c := config.Default()
	c.HTTP.Addr, c.HTTP.Plain, c.Auth.Mode = "10.0.0.1:8761", true, "off"
	mode := access.Off
	i := insecure{c, func() access.Mode { return mode }}
	const text = "# HELP rollcall_insecure 1 where the node does without a protection that it should have, because other machines reach it.\n# TYPE rollcall_insecure gauge\n" +
		"rollcall_insecure{what=\"auth-log-only\"} 0\nrollcall_insecure{what=\"auth-off\"} 1\nrollcall_insecure{what=\"cluster-plain\"} 0\nrollcall_insecure{what=\"http-plain\"} 1\n"
	expect.OK(t, testutil.CollectAndCompare(i, strings.NewReader(text)))
	mode = access.On // by the cluster
	expect.OK(t, testutil.CollectAndCompare(i, strings.NewReader(strings.Replace(text, "off\"} 1", "off\"} 0", 1))))
}
