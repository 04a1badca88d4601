package httpd

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
)

// respondConsul sends value as JSON, indented if the request asks for it with pretty.
func respondConsul(w http.ResponseWriter, r *http.Request, value any) error {
	return respondConsulStatus(w, r, http.StatusOK, value)
}

func respondConsulStatus(w http.ResponseWriter, r *http.Request, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if _, pretty, _ := param(r.URL.RawQuery, "pretty"); pretty {
		var indented bytes.Buffer
		_ = json.Indent(&indented, body, "", "    ") // it was just encoded
		body = append(indented.Bytes(), '\n')
	}
	respond(w, r, status, "application/json", body)
	return nil
}

// respondBool sends true or false, and nothing else: clients look for the word.
func respondBool(w http.ResponseWriter, r *http.Request, value bool) {
	respond(w, r, http.StatusOK, "application/json", strconv.AppendBool(nil, value))
}
