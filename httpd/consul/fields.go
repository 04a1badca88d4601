package consul

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// decodeFields decodes a JSON object into fields, by name: names are compared without case and without
// underscores, because configuration files are sent as they are (tagged_addresses). Other names are
// skipped, null is as good as absent, and of a repeated name the last counts. A namespace or partition
// other than the default one is refused, in all objects.
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
		if err := checkTenancy(folded(name.(string)), value); err != nil {
			return err
		}
		field, known := fields[folded(name.(string))] // within an object every other token is a name
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

// tenancyFields are the fields that say whose an object is, with the words of the refusal.
var tenancyFields = map[string]error{
	"namespace": Malformed(`Invalid field: "Namespace" - Namespaces are a Consul Enterprise feature`),
	"partition": Malformed(`Invalid field: "Partition" - Partitions are a Consul Enterprise feature`),
}

// IsDefault says whether a namespace or partition is the one that there is.
func IsDefault(name string) bool { return name == "" || name == "default" }

// checkTenancy refuses a field, by its folded name, that puts an object into another namespace or partition.
func checkTenancy(field string, value []byte) error {
	refusal, ok := tenancyFields[field]
	if !ok {
		return nil
	}
	var name string
	if err := json.Unmarshal(value, &name); err != nil || !IsDefault(name) {
		return refusal
	}
	return nil
}

// inDefault refuses an object whose namespace or partition is another than the default one.
func inDefault(namespace, partition string) error {
	switch {
	case !IsDefault(namespace):
		return tenancyFields["namespace"]
	case !IsDefault(partition):
		return tenancyFields["partition"]
	}
	return nil
}

func folded(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

// duration is a length of time as clients write it: "10s", or a number of nanoseconds.
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

// ms is the length in milliseconds, at least one if it is positive.
func (d duration) ms() int64 {
	if d <= 0 {
		return 0
	}
	return max(1, time.Duration(d).Milliseconds())
}
