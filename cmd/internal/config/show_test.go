package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

func TestWriteHidesThePasswordsOfPeers(t *testing.T) {
	s, err := loadWith(t, []string{"--data-dir", "d", "--replication-eureka", "old=http://user:secret@h:8761/eureka",
		"--replication-datacenters", "dc2=http://secret@h:1 http://user:secret@h:2 http://rct_secret:x@h:3"}, nil, "")
	need.OK(t, err)
	var out strings.Builder
	need.OK(t, s.Write(&out, false))
	expect.That(t, !strings.Contains(out.String(), "secret") && strings.Contains(out.String(), "http://user:xxxxx@h:2"),
		"it prints\n%s", out.String())
}

func TestWritePrintsWhatIsSetWithItsSource(t *testing.T) {
	s, err := loadWith(t,
		[]string{"--data-dir=/var/lib/rollcall", "--test-dial=n2=127.0.0.1:9"},
		map[string]string{"ROLLCALL_RAFT_HEARTBEAT_TIMEOUT": "700ms"},
		"cluster: {join: ['127.0.0.1:7761', '127.0.0.1:7762']}")
	need.OK(t, err)
	var out bytes.Buffer
	need.OK(t, s.Write(&out, false))
	const want = `cluster:
  join: ['127.0.0.1:7761', '127.0.0.1:7762'] # file
data:
  dir: /var/lib/rollcall # flag
raft:
  heartbeat-timeout: 700ms # env
test:
  dial: {n2: '127.0.0.1:9'} # flag
`
	expect.That(t, out.String() == want, "got\n%s\nwant\n%s", out.String(), want)
}

func TestWritePrintsAFileThatLoadsToTheSame(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=/d", "--cluster-join=a:1,b:2", "--test-dial=x=a:1", "--log-level=debug"}, nil, ""))(t)
	var out bytes.Buffer
	need.OK(t, s.Write(&out, true))
	again, err := loadWith(t, nil, nil, out.String())
	need.That(t, err == nil, "%v in\n%s", err, out.String())
	noEmptyMaps(again.Config)
	noEmptyMaps(s.Config)
	expect.Deep(t, again.Config, s.Config, "got")
	got, want := strings.Count(out.String(), " # default\n"), len(s.Config.Settings())-4
	expect.That(t, got == want, "%d keys are marked as defaults, want %d:\n%s", got, want, out.String())
}

// noEmptyMaps makes empty maps of settings nil, which have the same text.
func noEmptyMaps(c *Config) {
	for _, s := range setting.Of(c) {
		if s.Value.Kind() == reflect.Map && s.Value.Len() == 0 {
			s.Value.SetZero()
		}
	}
}

func TestTemplateHasEverySettingWithItsDefault(t *testing.T) {
	var lines []string
	for line := range strings.Lines(Template(false, nil)) {
		// As if every comment with a value were none.
		name, value, isSetting := strings.Cut(strings.Replace(strings.TrimRight(line, "\n"), "# ", "", 1), ":")
		if isSetting && !strings.Contains(strings.TrimSpace(name), " ") && (value == "" || strings.HasPrefix(value, " ")) {
			lines = append(lines, name+":"+value)
		}
	}
	values, err := parseConfigFile("all", []byte(strings.Join(lines, "\n")))
	need.OKf(t, err, "the template with every setting")
	for _, s := range Default().Settings() {
		if strings.HasPrefix(s.Key, "test.") || s.Key == "data.dir" {
			continue
		}
		v, there := values[s.Key]
		expect.That(t, there && v.text == s.String(), "%s is %q, there: %v, want %q", s.Key, v.text, there, s)
	}
}

func TestTemplateIsAFileThatIsUnderstood(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	need.OK(t, os.WriteFile(file, []byte(Template(false, nil)), 0o600))
	expect.OKf(t, ValidateFile(file), "a new file")
	need.OK(t, os.WriteFile(file, []byte(Template(true, nil)), 0o600))
	err := ValidateFile(file)
	need.That(t, err != nil, "a file for production is right without its certificates")
	for line := range strings.Lines(err.Error()) {
		expect.That(t, strings.Contains(line, ".tls.") && strings.Contains(line, "no such file"), "a new file for production: %s", line)
	}
}

func TestValidateFileNamesEachMistakeWithItsKey(t *testing.T) {
	t.Setenv("ROLLCALL_DATA_DIR", "elsewhere") // which has no say
	for text, want := range map[string][]string{
		"":                                    {"data.dir: is required"},
		"data: {dir: d}\nhttp: {adr: x}":      {"2: unknown key http.adr"},
		"data: {dir: d}\ngc: {percent: many}": {"2: gc.percent", "many"},
		"data: {dir: d}\nmode: xp\nlog: {level: loud}": {"mode:", "log.level:"},
	} {
		file := filepath.Join(t.TempDir(), "rollcall.yaml")
		need.OK(t, os.WriteFile(file, []byte(text), 0o600))
		err := ValidateFile(file)
		for _, w := range want {
			expect.That(t, err != nil && strings.Contains(err.Error(), w), "%q: %v, want %q in it", text, err, w)
		}
	}
	expect.That(t, ValidateFile("missing.yaml") != nil, "a file that is not there is right")
}

func TestSchemaHasEverySettingAndNoOther(t *testing.T) {
	var schema map[string]any
	need.OK(t, json.Unmarshal(need.Got(json.Marshal(Schema()))(t), &schema))
	leaves := map[string]map[string]any{}
	var walk func(prefix string, at map[string]any)
	walk = func(prefix string, at map[string]any) {
		properties, isSection := at["properties"].(map[string]any)
		if !isSection {
			leaves[strings.TrimSuffix(prefix, ".")] = at
			return
		}
		expect.That(t, at["additionalProperties"] == false, "%s allows other keys", prefix)
		for name, next := range properties {
			walk(prefix+name+".", next.(map[string]any))
		}
	}
	walk("", schema)
	all := Default().Settings()
	expect.Equal(t, len(leaves), len(all), "keys")
	for _, s := range all {
		leaf := leaves[s.Key]
		words, _ := leaf["enum"].([]any)
		expect.That(t, leaf["description"] == s.Help && (len(words) == 0) == (len(s.Words) == 0), "%s is %v", s.Key, leaf)
	}
}

func TestTemplateHasWhatWasChosen(t *testing.T) {
	chosen, err := ParseChosen([]string{"data.dir=/var/lib/rollcall", "http.addr=127.0.0.1:9761", "cluster.join=a:1,b:2", "http.plain=true"})
	need.OK(t, err)
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	need.OK(t, os.WriteFile(file, []byte(Template(false, chosen)), 0o600))
	c := need.Got(loadFile(file))(t)
	expect.That(t, c.Store.DataDir == "/var/lib/rollcall" && c.HTTP.Addr == "127.0.0.1:9761" && len(c.Store.Join) == 2 && c.HTTP.Plain, "got %+v", c)
	_, err = ParseChosen([]string{"data.dir", "http.adr=x", "limits.watchers=many", "limits.watchers=-1", "test.sync-delay=1s"})
	expect.Equal(t, strings.Count(err.Error(), "\n")+1, 5, "mistakes:")
	for _, want := range []string{`"data.dir" is not of the form key=value`, "http.adr is no setting", `limits.watchers: "many" is not`, "limits.watchers: -1 is below", "test.sync-delay is no setting"} {
		expect.That(t, strings.Contains(err.Error(), want), "got %v, want %q in it", err, want)
	}
}
