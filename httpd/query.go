package httpd

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	maxURIBytes   = 2 << 10
	maxParams     = 32
	maxMetaParams = 256 // of the metadata route, whose parameters are data
)

var errURITooLong = &refusal{status: http.StatusRequestURITooLong}

// checkQuery bounds the number of parameters.
func checkQuery(query string, limit int) error {
	if query != "" && strings.Count(query, "&")+1 > limit {
		return badRequest("the request has more than " + strconv.Itoa(limit) + " parameters")
	}
	return nil
}

// param returns the first value of a parameter, without building a map of all. ok is false if there
// is none.
func param(query, name string) (value string, ok bool, err error) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key, err = unescapeParam(key); err != nil {
			return "", false, err
		}
		if key == name {
			value, err = unescapeParam(value)
			return value, err == nil, err
		}
	}
	return "", false, nil
}

func unescapeParam(text string) (string, error) {
	if !strings.ContainsAny(text, "%+") {
		return text, nil
	}
	text, err := url.QueryUnescape(text)
	if err != nil {
		return "", badRequest("the query is not correctly escaped")
	}
	return text, nil
}

// dirtyParam reads lastDirtyTimestamp, in ms; 0 if it is not given.
func dirtyParam(query string) (int64, error) {
	text, ok, err := param(query, "lastDirtyTimestamp")
	if err != nil || !ok {
		return 0, err
	}
	dirty, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, badRequest("lastDirtyTimestamp must be a number of milliseconds")
	}
	return dirty, nil
}

// statusParam reads the status in value; def if it is not given and def is allowed.
func statusParam(query string, required bool) (registry.Status, error) {
	word, ok, err := param(query, "value")
	if err != nil {
		return 0, err
	}
	if !ok && !required {
		return registry.Unknown, nil
	}
	status, known := registry.ParseStatus(word)
	if !known {
		return 0, badRequest("value must be one of UP, DOWN, STARTING, OUT_OF_SERVICE, UNKNOWN")
	}
	return status, nil
}

// consistencyParam reads consistency; ok is false if it is not given.
func consistencyParam(query string) (read registry.Consistency, ok bool, err error) {
	word, ok, err := param(query, "consistency")
	if err != nil || !ok {
		return 0, false, err
	}
	read, known := registry.ParseConsistency(word)
	if !known {
		return 0, false, badRequest("consistency must be one of linearizable, leader, stale")
	}
	return read, true, nil
}

// flagParam reads a parameter that is true or false; false if it is not given.
func flagParam(query, name string) (bool, error) {
	word, ok, err := param(query, name)
	switch {
	case err != nil || !ok:
		return false, err
	case word != "true" && word != "false":
		return false, badRequest(name + " must be true or false")
	}
	return word == "true", nil
}
