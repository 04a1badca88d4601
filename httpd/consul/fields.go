package consul

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// decodeFields decodes a JSON object into fields, by name: names are compared without case and without underscores,
// because clients send configuration files unchanged (tagged_addresses). Other names are skipped, null counts as
// absent, and of a repeated name the last counts. A namespace or partition other than the default one is refused, in
// all objects.
func decodeFields(data []byte, fields map[string]any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	opening, err := dec.Token()
	if err != nil || opening == nil {
		return err
	}
	if opening != json.Delim('{') {
		return fmt.Errorf("want an object, got %v", opening)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		key := folded(name.(string)) // within an object every other token is a name
		if refusal, ok := tenancyFields[key]; ok {
			var tenant string
			if err := json.Unmarshal(value, &tenant); err != nil || !isDefault(tenant) {
				return refusal
			}
		}
		field, known := fields[key]
		if !known || string(value) == "null" {
			continue
		}
		if err := json.Unmarshal(value, field); err != nil {
			return fmt.Errorf("%v: %w", name, err)
		}
	}
	_, err = dec.Token()
	return err
}

// tenancyFields are the fields that say which tenant an object belongs to, with the words of the refusal.
var tenancyFields = map[string]error{
	"namespace": malformed(`Invalid field: "Namespace" - Namespaces are a Consul Enterprise feature`),
	"partition": malformed(`Invalid field: "Partition" - Partitions are a Consul Enterprise feature`),
}

// isDefault reports whether a namespace or partition is the default one.
func isDefault(name string) bool { return name == "" || name == "default" }

// inDefault refuses an object in any but the default namespace and partition.
func inDefault(namespace, partition string) error {
	switch {
	case !isDefault(namespace):
		return tenancyFields["namespace"]
	case !isDefault(partition):
		return tenancyFields["partition"]
	}
	return nil
}

func folded(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

// duration is a duration as clients write it: "10s", or a number of nanoseconds.
type duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if data[0] != '"' {
		var ns float64
		err := json.Unmarshal(data, &ns)
		*d = duration(ns)
		return err
	}
	if err := json.Unmarshal(data, &text); err != nil || text == "" {
		return err
	}
	length, err := time.ParseDuration(text)
	*d = duration(length)
	return err
}

// ms returns the duration in milliseconds, at least one if it is positive.
func (d duration) ms() int64 {
	if d <= 0 {
		return 0
	}
	return max(1, time.Duration(d).Milliseconds())
}

// malformed refuses a request that cannot be understood. Consul's agent answers 400 with the text.
func malformed(format string, args ...any) error { return web.BadRequest(fmt.Sprintf(format, args...)) }

// undecodable words a decoder error the way Consul does; failed is what the decoder could not do.
func undecodable(failed string, err error) error {
	if refused, ok := errors.AsType[*web.Refusal](err); ok {
		return refused
	}
	return malformed("%s: %v", failed, err)
}

// requestFailed is what Consul says of most bodies that it cannot decode.
const requestFailed = "Request decode failed"

// rejected refuses a request that was understood but cannot be done. Consul's servers answer 500 with the text.
func rejected(format string, args ...any) error {
	return &web.Refusal{Status: http.StatusInternalServerError, Text: fmt.Sprintf(format, args...)}
}

// checkName returns what is wrong with a name that will be stored, or nil.
func checkName(what, name string) error {
	if !order.ValidName(name) || len(strings.ToUpper(name)) > order.MaxName {
		return malformed(`Invalid %s, it must be 1 to %d bytes of UTF-8 without control characters, and neither "." nor ".."`, what, order.MaxName)
	}
	return nil
}
