package httpd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
)

// respondConsul sends a document as JSON, indented if the call asks for it with pretty. True and false it sends as they
// are: clients look for the word.
func (c *call) respondConsul(document any) error {
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	if _, word := document.(bool); !word && c.given("pretty") {
		var indented bytes.Buffer
		_ = json.Indent(&indented, body, "", "    ") // it was just encoded
		body = append(indented.Bytes(), '\n')
	}
	respond(c.w, c.r, cmp.Or(c.status, http.StatusOK), "application/json", body)
	return nil
}
