package consul

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// A list of maxWhole bytes or more is written element by element, and is never in memory as a whole.
const (
	maxWhole  = 256 << 10
	listPiece = 64 << 10 // bytes written at once
)

// errReadTooLarge is the response to a read of too many keys.
var errReadTooLarge = &web.Refusal{
	Status: http.StatusRequestEntityTooLarge,
	Text:   fmt.Sprintf("the keys and values that were asked for have more than %d bytes, which is the most that one answer may have; ask for a longer prefix, or for fewer at once", kv.MaxRead),
}

// jsonList is a list of values in JSON, with the text around it.
type jsonList struct {
	open, close             string
	prettyOpen, prettyClose string
	prefix                  string // of each line of an element, if pretty
	elements                int
	element                 func(i int) any
}

// plainList is a list with nothing around it.
func plainList(elements int, element func(i int) any) jsonList {
	return jsonList{open: "[", close: "]", prettyOpen: "[", prettyClose: "\n]\n", prefix: "    ", elements: elements, element: element}
}

// txnList is the list of results in the response to a transaction that was performed (txnResponse).
func txnList(elements int, element func(i int) any) jsonList {
	return jsonList{
		open: `{"Results":[`, close: `],"Errors":null}`,
		prettyOpen: "{\n    \"Results\": [", prettyClose: "\n    ],\n    \"Errors\": null\n}\n",
		prefix: "        ", elements: elements, element: element,
	}
}

// respondLarge sends a JSON list while it is encoded, without a length.
func (c call) respondLarge(list jsonList) (any, error) {
	header := c.W.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept-Encoding")
	pieces, pretty := web.NewPieceWriter(c.W), c.Given("pretty")
	if !web.WantsGzip(c.R) {
		return web.Sent, list.write(pieces, pretty)
	}
	header.Set("Content-Encoding", "gzip")
	err := web.WriteGzip(pieces, func(w io.Writer) error { return list.write(w, pretty) })
	if err != nil {
		return nil, err
	}
	return web.Sent, nil
}

// write encodes a list. It only returns an error of encoding, from before anything was sent: a client that goes away
// is not an error.
func (l jsonList) write(w io.Writer, pretty bool) error {
	out := bufio.NewWriterSize(w, listPiece)
	open, end := l.open, l.close
	if pretty {
		open, end = l.prettyOpen, l.prettyClose
	}
	_, _ = out.WriteString(open)
	var indented bytes.Buffer
	for i := range l.elements {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		text, err := json.Marshal(l.element(i))
		if err != nil {
			return err
		}
		if pretty {
			indented.Reset()
			_ = json.Indent(&indented, text, l.prefix, "    ") // cannot fail: it was just encoded
			_, _ = out.WriteString("\n" + l.prefix)
			text = indented.Bytes()
		}
		if _, err := out.Write(text); err != nil {
			return nil // the client went away
		}
	}
	_, _ = out.WriteString(end)
	_ = out.Flush()
	return nil
}
