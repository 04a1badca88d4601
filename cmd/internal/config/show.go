package config

import (
	"io"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// Write prints the settings as a file that would load to the same values in the working directory, with their sources
// as comments; settings at their defaults only if all is set. It prints no secrets: only the names of files, and URLs
// without their password.
func (s Loaded) Write(w io.Writer, all bool) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, each := range s.Config.Settings() {
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

// add adds a setting to the sections of the file.
func (s Loaded) add(root *yaml.Node, each setting.Setting, src source) error {
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

// difference says that the cluster has another value. It returns "" if the values are equal, or the cluster's is not
// known.
func (s Loaded) difference(each setting.Setting) string {
	text, shared := s.Cluster[each.Key]
	if !shared {
		return ""
	}
	cluster := *s.Config
	for _, other := range setting.Of(&cluster) {
		if other.Key == each.Key && other.Set(text) == nil && cluster.Leases() == s.Leases() {
			return "" // even if the text differs
		}
	}
	return ", but the cluster has " + cli.Printable(text)
}

// child returns the section of a mapping, and adds it if it is missing.
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

// redact returns a text, a list or a map as it may be shown: without the passwords of its URLs. It returns nil for a
// setting of another kind, which may be shown as written.
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

// redactURLs hides the passwords in URLs that are separated by spaces, and a user without a password, who may be a
// token.
func redactURLs(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if u, err := url.Parse(word); err == nil && u.User != nil {
			if _, has := u.User.Password(); !has || access.Looks(u.User.Username()) {
				u.User = url.User("xxxxx")
			}
			words[i] = u.Redacted()
		}
	}
	return strings.Join(words, " ")
}
