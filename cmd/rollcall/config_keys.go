package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// key is one setting: a leaf of Config.
type key struct {
	name string // dotted, as the file nests it: http.tls.client-ca
	help string
	path []int // of the field in Config, for reflect
}

// configKeys lists the leaves of Config in the order of the struct.
func configKeys() []key { return appendKeys(nil, reflect.TypeFor[Config](), "", nil) }

func appendKeys(keys []key, t reflect.Type, prefix string, path []int) []key {
	for i := range t.NumField() {
		f := t.Field(i)
		name := prefix + f.Tag.Get("yaml")
		at := append(path[:len(path):len(path)], i)
		if f.Type.Kind() == reflect.Struct {
			keys = appendKeys(keys, f.Type, name+".", at)
			continue
		}
		keys = append(keys, key{name: name, help: f.Tag.Get("help"), path: at})
	}
	return keys
}

// flag is the key's flag, without dashes: http-tls-client-ca.
func (k key) flag() string { return strings.ReplaceAll(k.name, ".", "-") }

// env is the key's environment variable: ROLLCALL_HTTP_TLS_CLIENT_CA.
func (k key) env() string {
	return "ROLLCALL_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(k.name))
}

func (k key) field(c *Config) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(k.path) }

// kind is the word for the key's type in usages and tables.
func (k key) kind() string {
	switch k.field(&Config{}).Interface().(type) {
	case bool:
		return "bool"
	case int, int64, uint64, float64:
		return "number"
	case time.Duration:
		return "duration"
	case []string:
		return "list"
	case map[string]string:
		return "map"
	}
	return "text"
}

// set parses text, the form of flags and environment variables, into the key's field of c. The file
// uses it too for what it holds as a scalar, so that the three agree.
func (k key) set(c *Config, text string) error {
	switch p := k.field(c).Addr().Interface().(type) {
	case *string:
		*p = text
	case *bool:
		return parseInto(p, strconv.ParseBool, text, "true or false")
	case *int:
		return parseInto(p, strconv.Atoi, text, "a number such as 2")
	case *int64:
		return parseInto(p, parseInt64, text, "a number such as 65536")
	case *uint64:
		return parseInto(p, parseUint64, text, "a number, zero or more")
	case *float64:
		return parseInto(p, parseFloat64, text, "a number such as 0.85")
	case *time.Duration:
		return parseInto(p, time.ParseDuration, text, "a duration with its unit, such as 500ms or 2s")
	case *[]string:
		*p = cli.SplitList(text)
	case *map[string]string:
		return parseInto(p, parseMap, text, "of the form name=address,name=address")
	default:
		panic(fmt.Sprintf("key %s has a type that cannot be set: %T", k.name, p))
	}
	return nil
}

// format is the inverse of set.
func (k key) format(c *Config) string {
	switch v := k.field(c).Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		return formatMap(v)
	default:
		return fmt.Sprint(v)
	}
}

func parseInto[T any](dst *T, parse func(string) (T, error), text, want string) error {
	v, err := parse(text)
	if err != nil {
		return fmt.Errorf("%q is not %s", text, want)
	}
	*dst = v
	return nil
}

func parseInt64(text string) (int64, error)     { return strconv.ParseInt(text, 10, 64) }
func parseUint64(text string) (uint64, error)   { return strconv.ParseUint(text, 10, 64) }
func parseFloat64(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
