// Package setting reads settings off the structs that hold them. A field with a key tag is one setting. Its name in
// files, flags and variables, its default, its bounds and its help are its tags, and are written nowhere else. The
// package opens no file and knows no flag.
//
// The tags of a setting:
//
//	key      its full name: limits.watchers
//	help     what it means
//	default  its text if nothing was set; without one the zero value
//	min, max its bounds
//	zero     zero (for texts: none) is allowed below min too, and means this
//	words    the possible texts, separated by spaces
//	unit     ms or s: the number is a duration in this unit
//	kind     the word for its type, if not the field's: a map that is kept as text
//	path     yes: it names a file or a folder; in a settings file, a relative path starts at that file's folder
//	reload   yes: it is read again while the node runs (on SIGHUP)
//	cluster  yes: it is part of the replicated state, where the leader's value applies
//
// The last two may also be on a struct, for all the settings in it.
package setting

import (
	"reflect"
	"strings"
	"time"
)

// Setting is one field of a holder, and what its tags say.
type Setting struct {
	Key, Help, Default string
	Min, Max, Zero     string
	Words              []string // possible words; any if empty
	Reload, Cluster    bool
	Path               bool
	Value              reflect.Value // the field

	kind string
	unit time.Duration // of a number that is a duration; otherwise 0
}

// Of lists the settings of a holder, a pointer to a struct, in the order of its fields and those of the structs in
// it.
func Of(holder any) []Setting { return of(nil, reflect.ValueOf(holder).Elem(), Setting{}) }

func of(all []Setting, v reflect.Value, outer Setting) []Setting {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		s := Setting{Reload: outer.Reload || f.Tag.Get("reload") != "", Cluster: outer.Cluster || f.Tag.Get("cluster") != "", Value: v.Field(i)}
		key, tagged := f.Tag.Lookup("key")
		switch {
		case tagged:
			s.Key = key
			all = append(all, s.tagged(f.Tag))
		case f.IsExported() && f.Type.Kind() == reflect.Struct:
			all = of(all, v.Field(i), s)
		}
	}
	return all
}

func (s Setting) tagged(tag reflect.StructTag) Setting {
	s.Help, s.Default = tag.Get("help"), tag.Get("default")
	s.Min, s.Max, s.Zero = tag.Get("min"), tag.Get("max"), tag.Get("zero")
	s.Path = tag.Get("path") != ""
	s.Words, s.kind = strings.Fields(tag.Get("words")), tag.Get("kind")
	s.unit = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second}[tag.Get("unit")]
	return s
}

// Flag returns the setting's flag, without dashes: http-tls-client-ca.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Key, ".", "-") }

// Env returns the setting's environment variable: ROLLCALL_HTTP_TLS_CLIENT_CA.
func (s Setting) Env() string {
	return "ROLLCALL_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(s.Key))
}

// Kind returns the word for the setting's type in usages and tables.
func (s Setting) Kind() string {
	switch {
	case s.kind != "":
		return s.kind
	case s.unit != 0 || s.Value.Type() == reflect.TypeFor[time.Duration]():
		return "duration"
	}
	switch s.Value.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	}
	return "number"
}

// Limits returns what the setting's bounds allow, in words for a table, or "" for everything.
func (s Setting) Limits() string {
	var words string
	switch {
	case len(s.Words) > 0:
		return strings.Join(s.Words, ", ")
	case s.Min != "" && s.Max != "":
		words = s.Min + " to " + s.Max
	case s.Min != "":
		words = "at least " + s.Min
	case s.Max != "":
		words = "at most " + s.Max
	}
	if s.Zero != "" {
		none := "0"
		if s.Value.Kind() == reflect.String {
			none = "none"
		}
		words += "; " + none + ": " + s.Zero
	}
	return strings.TrimPrefix(words, "; ")
}

// TakesEffect says when a changed value takes effect, in words for a table; "" for the next start.
func (s Setting) TakesEffect() string {
	switch {
	case s.Cluster:
		return "by the next leader"
	case s.Reload:
		return "on SIGHUP"
	}
	return ""
}
