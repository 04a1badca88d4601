package consul_test

import (
	"bufio"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-bexpr"

	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

//go:embed testdata/selectors.txt
var selectorsText string

// consulsSelectors are the selectors of Consul's types with their operators, as texts: by type, and by selector.
func consulsSelectors(t testing.TB) map[string]map[string]string {
	t.Helper()
	types := map[string]map[string]string{}
	var of map[string]string
	for lines := bufio.NewScanner(strings.NewReader(selectorsText)); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "== "); ok {
			of = map[string]string{}
			types[name] = of
			continue
		}
		selector, operators, ok := strings.Cut(line, ": ")
		need.That(t, ok && of != nil, "the line %q is no selector", line)
		of[selector] = sorted(strings.Split(operators, ", "))
	}
	return types
}

func sorted(operators []string) string {
	slices.Sort(operators)
	return strings.Join(operators, ", ")
}

// selectors are those of a type of ours.
func selectors(t testing.TB, of any) map[string]string {
	t.Helper()
	fields := need.Got(bexpr.GenerateFieldConfigurations(of))(t)
	all := map[string]string{}
	fields.Walk(func(path bexpr.FieldPath, field *bexpr.FieldConfiguration) bool {
		var operators []string
		for _, o := range field.SupportedOperations {
			operators = append(operators, o.String())
		}
		if operators != nil {
			all[path.String()] = sorted(operators)
		}
		return true
	})
	return all
}

// tried makes a filter of each operator of each selector and applies it to a value.
func tried[T any](t *testing.T, all map[string]string, value T) {
	t.Helper()
	for selector, operators := range all {
		selector = strings.ReplaceAll(selector, "<any>", "lan")
		for operator := range strings.SplitSeq(operators, ", ") {
			text := map[string]string{
				"Equal": `%s == 1`, "Not Equal": `%s != 1`, "In": `1 in %s`, "Not In": `1 not in %s`, "Matches": "%s matches `1`", "Not Matches": "%s not matches `1`",
				"Is Empty": `%s is empty`, "Is Not Empty": `%s is not empty`,
			}[operator]
			filter, err := consul.NewFilter[T](fmt.Sprintf(text, selector))
			if need.OKf(t, err, "%s %s", selector, operator); err == nil {
				_, err = filter.Matches(&value)
				expect.OKf(t, err, "%s %s on a value", selector, operator)
			}
		}
	}
}

func TestFiltersNameWhatConsulsMayName(t *testing.T) {
	service := consul.Service{Node: "n", ID: "i", Name: "s", Proxy: &consul.Proxy{}, Tagged: map[string]consul.Address{"lan": {Address: "a", Port: 1}}, Meta: map[string]string{"lan": "1"}}
	home := consul.Home{}
	node := home.Node(nil)
	health := consul.With(node, []consul.Check{{CheckID: "c"}}, service)
	theirs := consulsSelectors(t)
	check := func(name string, ours any, try func(all map[string]string)) {
		t.Run(name, func(t *testing.T) {
			want, got := theirs[name], selectors(t, ours)
			for _, selector := range slices.Sorted(maps.Keys(want)) {
				expect.Equal(t, got[selector], want[selector], "operators of %s:", selector)
			}
			for selector := range got {
				expect.That(t, want[selector] != "", "%s is a selector here, and none of Consul's", selector)
			}
			try(want)
		})
	}
	check("Node", node, func(all map[string]string) { tried(t, all, node) })
	check("NodeService", service.OnNode(), func(all map[string]string) { tried(t, all, service.OnNode()) })
	check("ServiceNode", service.With(node), func(all map[string]string) { tried(t, all, service.With(node)) })
	check("HealthCheck", consul.Check{}, func(all map[string]string) { tried(t, all, consul.Check{}) })
	check("CheckServiceNode", health, func(all map[string]string) { tried(t, all, health) })
	check("api.AgentService", service.OnNode(), func(all map[string]string) { tried(t, all, service.OnNode()) })
}

// The parser's time is bounded by the fuzzer's own limit.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		`Service.ID == w1`, "not (\"v1\" in Service.Tags or Node.Meta[\"a b\"] != `2`)", `Checks.Status matches "^c" and Checks is not empty`, `Service.Port == -0.5`,
		`Service.TaggedAddresses.lan.Port == 0x50`, `(((((((Node.Node == x)))))))`, `not not not Node.ID == "`, "Service.Meta.x matches `(a{1000}){1000}`", `"\x" in Node.Meta`, "\xff(",
	} {
		f.Add(seed)
	}
	service := consul.Service{ID: "w1", Tags: []string{"v1"}, Proxy: &consul.Proxy{}, Tagged: map[string]consul.Address{"lan": {Port: 80}}, Meta: map[string]string{"x": "aaaa"}}
	value := consul.With(consul.Home{}.Node(nil), []consul.Check{{Status: "critical"}}, service)
	f.Fuzz(func(t *testing.T, expression string) {
		filter, err := consul.NewFilter[consul.HealthService](expression)
		switch {
		case err != nil:
			checkRefusal(t, err)
			expect.That(t, strings.HasPrefix(err.Error(), "Failed to create boolean expression evaluator: "), "the error is %v", err)
		case expression != "":
			_, err := filter.Matches(&value)
			expect.OKf(t, err, "what was accepted cannot be evaluated")
		}
	})
}
