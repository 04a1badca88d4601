package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/cmd/probe"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/store"
)

// source says where a setting came from.
type source string

// The sources, strongest first.
const (
	fromFlag    source = "flag"
	fromEnv     source = "env"
	fromFile    source = "file"
	fromDefault source = "default"
)

// settings is a loaded configuration and the source of each of its keys, by name.
type settings struct {
	*Config
	sources map[string]source
	cluster client.Settings // what the cluster has, by key; nil: it was not asked
}

// inputs are the places that settings are loaded from.
type inputs struct {
	flags *pflag.FlagSet               // with addConfigFlags
	env   func(string) (string, bool)  // os.LookupEnv
	read  func(string) ([]byte, error) // os.ReadFile
}

func fromProcess(flags *pflag.FlagSet) inputs {
	return inputs{flags: flags, env: os.LookupEnv, read: os.ReadFile}
}

const configFlag = "config"

// addConfigFlags adds --config and one flag per key. The flags hold text; loadSettings parses it, so that
// all mistakes can be reported at once.
func addConfigFlags(flags *pflag.FlagSet) {
	flags.String(configFlag, "", "YAML file with settings; each of its keys is also a flag and an environment variable")
	for _, each := range defaultConfig().settings() {
		v := &textFlag{kind: each.Kind(), text: each.String()}
		f := flags.VarPF(v, each.Flag(), "", each.Help)
		if v.kind == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// textFlag is a flag whose text is parsed later. A list or map may be given in parts.
type textFlag struct {
	kind, text string
	given      bool
}

func (f *textFlag) String() string { return f.text }
func (f *textFlag) Type() string   { return f.kind }

func (f *textFlag) Set(text string) error {
	if f.given && (f.kind == "list" || f.kind == "map") {
		text = f.text + "," + text
	}
	f.text, f.given = text, true
	return nil
}

// loadSettings merges flags, environment, file and defaults, in this order, and validates the result. The
// error joins every mistake found.
func loadSettings(in inputs) (settings, error) {
	s := settings{Config: defaultConfig(), sources: make(map[string]source)}
	var errs []error
	file, err := readConfigFile(in)
	if err != nil {
		errs = append(errs, err)
	}
	for _, each := range s.Config.settings() {
		src, err := resolve(each, in, file)
		if err != nil {
			errs = append(errs, err)
		}
		s.sources[each.Key] = src
	}
	if len(errs) > 0 {
		// Validating what was only partly understood would report mistakes that nobody made.
		return s, errors.Join(errs...)
	}
	if s.EurekaCompat {
		s.turnOn("eureka-compat.")
	}
	if s.Mode == modeAP && s.sources["reads.eureka"] == fromDefault {
		s.HTTPD.Reads = httpd.ReadsStale // there is nothing else
	}
	if s.sources["checks.allow-loopback"] == fromDefault {
		s.Checks.Rules.AllowLoopback = loopback(s.HTTP.Addr) // clients of this machine alone may name it
	}
	return s, s.Validate()
}

// turnOn turns on all switches of a section.
func (c *Config) turnOn(section string) {
	for _, s := range setting.Of(c) {
		if strings.HasPrefix(s.Key, section) && s.Kind() == "bool" {
			s.Value.SetBool(true)
		}
	}
}

// resolve sets one setting from its strongest source. An empty environment variable counts as not set,
// because container files cannot leave one out.
func resolve(s setting.Setting, in inputs, file fileValues) (source, error) {
	if in.flags.Changed(s.Flag()) {
		return fromFlag, prefix("flag --"+s.Flag(), s.Set(in.flags.Lookup(s.Flag()).Value.String()))
	}
	if text, ok := in.env(s.Env()); ok && text != "" {
		return fromEnv, prefix("environment variable "+s.Env(), s.Set(text))
	}
	if v, ok := file[s.Key]; ok {
		return fromFile, prefix(v.place(s.Key), s.Set(v.text))
	}
	return fromDefault, nil
}

func prefix(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func readConfigFile(in inputs) (fileValues, error) {
	path, err := in.flags.GetString(configFlag)
	if err != nil || path == "" {
		return nil, err
	}
	data, err := in.read(path)
	if err != nil {
		return nil, fmt.Errorf("flag --%s: %w", configFlag, err)
	}
	return parseConfigFile(path, data)
}

// fileValue is one key of the file, in the form that Setting.Set parses, and where it stands.
type fileValue struct {
	text string
	file string
	line int
}

func (v fileValue) place(name string) string { return fmt.Sprintf("%s:%d: %s", v.file, v.line, name) }

type fileValues map[string]fileValue

// parseConfigFile reads the YAML of a configuration file. Its error joins every key that is unknown,
// given twice or of the wrong shape, each with its line.
func parseConfigFile(path string, data []byte) (fileValues, error) {
	root, err := singleDocument(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if root == nil {
		return nil, nil
	}
	p := fileParser{file: path, kinds: make(map[string]string), values: make(fileValues)}
	for _, s := range setting.Of(new(Config)) {
		p.kinds[s.Key] = s.Kind()
	}
	p.section("", root)
	return p.values, errors.Join(p.errs...)
}

// singleDocument returns the root of the only document; nil if there is none.
func singleDocument(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document; give one")
	}
	return doc.Content[0], nil
}

type fileParser struct {
	file   string
	kinds  map[string]string // of every known key
	values fileValues
	errs   []error
}

func (p *fileParser) fail(n *yaml.Node, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %s", p.file, n.Line, fmt.Sprintf(format, args...)))
}

// section reads a mapping whose keys begin with prefix.
func (p *fileParser) section(prefix string, n *yaml.Node) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n, "%s is a section: it holds keys, not a value", sectionName(prefix))
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := prefix+n.Content[i].Value, n.Content[i+1]
		if seen[name] {
			p.fail(n.Content[i], "key %s is given twice", name)
			continue
		}
		seen[name] = true
		p.key(name, n.Content[i], value)
	}
}

func sectionName(prefix string) string {
	if prefix == "" {
		return "the file"
	}
	return strings.TrimSuffix(prefix, ".")
}

func (p *fileParser) key(name string, at, value *yaml.Node) {
	switch kind, known := p.kinds[name]; {
	case known:
		p.leaf(name, kind, value)
	case p.isSection(name):
		p.section(name+".", value)
	default:
		p.fail(at, "unknown key %s", name)
	}
}

func (p *fileParser) isSection(name string) bool {
	for known := range p.kinds {
		if strings.HasPrefix(known, name+".") {
			return true
		}
	}
	return false
}

// leaf reads a value. Lists and maps may also be given in their flag form, as one text.
func (p *fileParser) leaf(name, kind string, n *yaml.Node) {
	switch {
	case isNull(n): // "key:" with nothing behind it leaves the default
	case n.Kind == yaml.ScalarNode:
		p.values[name] = fileValue{n.Value, p.file, n.Line}
	case kind == "list" && n.Kind == yaml.SequenceNode:
		p.joined(name, n, func(c []*yaml.Node) string { return c[0].Value }, 1)
	case kind == "map" && n.Kind == yaml.MappingNode:
		p.joined(name, n, func(c []*yaml.Node) string { return c[0].Value + "=" + c[1].Value }, 2)
	default:
		p.fail(n, "key %s wants a %s", name, kind)
	}
}

// joined turns the elements of a list or map, step nodes each, into the flag form.
func (p *fileParser) joined(name string, n *yaml.Node, text func([]*yaml.Node) string, step int) {
	var parts []string
	for i := 0; i+step <= len(n.Content); i += step {
		elem := n.Content[i : i+step]
		for _, c := range elem {
			if c.Kind != yaml.ScalarNode || strings.ContainsAny(c.Value, ",=") {
				p.fail(c, "key %s wants plain addresses and names", name)
				return
			}
		}
		parts = append(parts, text(elem))
	}
	p.values[name] = fileValue{strings.Join(parts, ","), p.file, n.Line}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func newConfigCommand() *cobra.Command {
	return cli.Group("config", "Look at a server's configuration", newConfigShowCommand())
}

func newConfigShowCommand() *cobra.Command {
	var c connection
	var effective bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the settings as YAML, each with where it came from (flag, env, file or default)",
		Long: "Prints the settings as YAML, each with where it came from: flag, env, file or default. With\n" +
			"--effective and --addr, those that decide how leases end are compared with what the leader brought\n" +
			"to the cluster.",
		Example: "  rollcall config show --config rollcall.yaml\n" +
			"  rollcall config show --effective --config rollcall.yaml\n" +
			"  rollcall config show --effective --config rollcall.yaml --addr http://127.0.0.1:8761",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.addr != "" && !effective {
				return cli.Usage(errors.New("--addr: give --effective too: the cluster's settings are compared with all"))
			}
			s, err := loadSettings(fromProcess(cmd.Flags()))
			if err != nil {
				return cli.Usage(err)
			}
			if c.addr != "" {
				if s.cluster, err = c.settings(cmd.Context()); err != nil {
					return err
				}
			}
			return s.write(cmd.OutOrStdout(), effective)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "print defaults too")
	c.addServerFlags(cmd.Flags())
	addConfigFlags(cmd.Flags())
	return cmd
}

// settings asks the cluster for the settings that it shares.
func (c *connection) settings(ctx context.Context) (client.Settings, error) {
	cl, err := c.client(nil)
	if err != nil {
		return nil, err
	}
	return cl.Settings(ctx)
}

// write prints the settings as a file that would load to the same, with their sources as comments;
// those left at their defaults only if all is set. Secrets are not printed: of files only the names, of
// URLs everything but the password.
func (s settings) write(w io.Writer, all bool) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, each := range s.Config.settings() {
		src := s.sources[each.Key]
		if src == fromDefault && !all {
			continue
		}
		if err := s.add(root, each, src); err != nil {
			return err
		}
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if len(root.Content) == 0 {
		_, err := io.WriteString(w, "# nothing is set; --effective prints the defaults\n")
		return err
	}
	return enc.Encode(root)
}

func (s settings) add(root *yaml.Node, each setting.Setting, src source) error {
	value := scalar(each.String())
	if shown := redact(each); shown != nil {
		if err := value.Encode(shown); err != nil {
			return err
		}
	}
	value.Style = yaml.FlowStyle
	if value.Kind == yaml.ScalarNode {
		value.Style = 0
	}
	value.LineComment = string(src) + s.difference(each)
	parent := root
	parts := strings.Split(each.Key, ".")
	for _, section := range parts[:len(parts)-1] {
		parent = child(parent, section)
	}
	parent.Content = append(parent.Content, scalar(parts[len(parts)-1]), value)
	return nil
}

// difference says that the cluster has another value; "" if it has not, or was not asked.
func (s settings) difference(each setting.Setting) string {
	text, shared := s.cluster[each.Key]
	if !shared {
		return ""
	}
	cluster := *s.Config
	for _, other := range setting.Of(&cluster) {
		if other.Key == each.Key && other.Set(text) == nil && cluster.leases() == s.leases() {
			return "" // though it may be written in another way
		}
	}
	return ", but the cluster has " + cli.Printable(text)
}

// child returns the section of a mapping, made if it is missing.
func child(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	section := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, scalar(name), section)
	return section
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// redact returns a text, a list or a map of the settings as it may be shown: without the passwords in its URLs. Nil: it is none of
// them, and may be shown as it is written.
func redact(s setting.Setting) any {
	switch s.Kind() {
	case "text":
		return s.String()
	case "list":
		shown := []string{}
		for _, text := range setting.SplitList(s.String()) {
			shown = append(shown, redactURLs(text))
		}
		return shown
	case "map":
		shown, _ := setting.ParseMap(s.String())
		for name, text := range shown {
			shown[name] = redactURLs(text)
		}
		return shown
	}
	return nil
}

// redactURLs hides the passwords of URLs that are separated by spaces.
func redactURLs(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if u, err := url.Parse(word); err == nil && u.User != nil {
			words[i] = u.Redacted()
		}
	}
	return strings.Join(words, " ")
}

// Config is everything that can be set for a server, each a row: its tags are its key in the file, from which the flag
// and the environment variable follow, its default, its bounds and its help (see package setting). The reference table of
// docs/operations.md is made of them.
type Config struct {
	Mode       string `key:"mode" default:"cp" words:"cp ap" help:"how operations are ordered: cp (by Raft, in a cluster) or ap (by each node for itself, as Eureka does)"`
	Datacenter string `key:"datacenter" default:"dc1" help:"name of the datacenter that this node belongs to; unique among those that replicate to each other"`
	NodeName   string `key:"node.name" help:"the node's name, unique in its cluster and bound to its data directory; empty: the host name"`

	HTTP         HTTPConfig
	HTTPD        httpd.Config
	ClusterPlain bool `key:"cluster.plain" help:"allow cluster.addr to be reached from other machines without TLS: every machine that reaches it can take part in the consensus"`
	Store        store.Config
	MinFree      int64 `key:"data.min-free" default:"67108864" min:"0" help:"bytes that the disk of data.dir must have left; with less, the node (in mode cp all nodes, if it leads) answers 507 to what its clients want to add, and goes on with everything else; 0: no bound"`
	Quota        Quota
	Checks       ChecksConfig
	Replication  ReplicationConfig

	// EurekaCompat brings upstream's behaviour back, for comparison.
	EurekaCompat bool `key:"eureka-compat.all" help:"turn on eureka-compat.doubled-lease, .eviction-timer, .expectation and .read-only-cache: leases end, and are kept, as a stock Eureka server does it"`

	PProfAddr string `key:"pprof.addr" help:"loopback address that serves /debug/pprof/; empty: none"`
	LogLevel  string `key:"log.level" default:"info" words:"debug info warn error" help:"what is logged, to standard error"`
	LogFormat string `key:"log.format" default:"text" words:"text json" help:"how it is written"`
	GCPercent int    `key:"gc.percent" default:"200" min:"0" help:"heap growth in percent between collections; 0: leave it to GOGC"`
}

// HTTPConfig is where clients are served.
type HTTPConfig struct {
	Addr      string   `key:"http.addr" default:"127.0.0.1:8761" help:"address that serves the HTTP API"`
	Advertise string   `key:"http.advertise" help:"address at which clients reach the HTTP API, shown by status; empty: http.addr"`
	Hosts     []string `key:"http.hosts" help:"names under which a listener on loopback is served, beside localhost, addresses and that of http.advertise; another one is answered 421"`
	TLS       HTTPTLSConfig
	Plain     bool `key:"http.plain" help:"allow http.addr to be reached from other machines without TLS, which a mesh or a proxy may add: its traffic can be read and changed on its way"`
	// HeartbeatTakeover is explained in docs/adr/0007.
	HeartbeatTakeover bool `key:"http.heartbeat-takeover" default:"true" help:"read connections that carry heartbeats, without TLS, without net/http: the same answers for less CPU"`
}

// HTTPTLSConfig names the files of the HTTP listener's TLS.
type HTTPTLSConfig struct {
	Cert     string `key:"http.tls.cert" help:"PEM file with the server's certificate chain; read again when it changes"`
	Key      string `key:"http.tls.key" help:"PEM file with its key, of mode 0640 or narrower"`
	ClientCA string `key:"http.tls.client-ca" help:"PEM file with the authorities of client certificates; if given, clients must present one"`
}

// ChecksConfig is what is done about the checks that services are registered with through Consul's API.
type ChecksConfig struct {
	Probes bool `key:"checks.probes" default:"true" help:"mode cp: the leader runs HTTP and TCP checks; false: they stay as clients set them"`
	Rules  probe.Rules
}

// defaultConfig is what holds where nothing was set.
func defaultConfig() *Config {
	c := setting.Default[Config]()
	return &c
}

// settings are the rows of the configuration, sorted by key.
func (c *Config) settings() []setting.Setting {
	all := setting.Of(c)
	slices.SortFunc(all, func(a, b setting.Setting) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// reloader reads the settings of a running node again.
type reloader struct {
	load    func() (settings, error)
	apply   func(*Config)
	log     *slog.Logger
	running Config // what the node runs with
}

// hangups returns where SIGHUP arrives, which ends the process otherwise, until stop is called.
func hangups() (hup <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// during reloads at each signal while do runs, and returns its error.
func (r *reloader) during(ctx context.Context, hup <-chan os.Signal, do func(context.Context) error) error {
	done, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var reloading sync.WaitGroup
	reloading.Go(func() { r.run(done, hup) })
	defer reloading.Wait()
	defer cancel()
	return do(ctx)
}

// run reloads at each signal until ctx ends.
func (r *reloader) run(ctx context.Context, hup <-chan os.Signal) {
	for {
		select {
		case <-hup:
			r.reload()
		case <-ctx.Done():
			return
		}
	}
}

// reload takes over what can change while the node runs, and says what cannot. Settings with a
// mistake leave everything as it is.
func (r *reloader) reload() {
	s, err := r.load()
	if err != nil {
		r.log.Error("the settings were not read again, the old ones hold", "err", err)
		return
	}
	now, later := r.takeOver(s.Config)
	r.apply(&r.running)
	r.log.Info("the settings were read again", "changed", now)
	if len(later) > 0 {
		r.log.Warn("settings have changed that need a restart", "keys", later)
	}
}

// takeOver lists the keys that differ from what runs: those that hold from now on, and those that need
// a restart.
func (r *reloader) takeOver(c *Config) (now, later []string) {
	read := c.settings()
	for i, running := range r.running.settings() {
		switch {
		case running.String() == read[i].String():
		case running.Reload:
			running.Value.Set(read[i].Value)
			now = append(now, running.Key)
		default:
			later = append(later, running.Key)
		}
	}
	return now, later
}
