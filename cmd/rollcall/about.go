package main

import (
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// about opens the connection of a command that is about one instance, APP/ID.
func (c *connection) about(text string) (registry.Key, *client.Client, error) {
	key, err := parseKey(text)
	if err != nil {
		return key, nil, cli.Usage(err)
	}
	cl, err := c.open(nil)
	return key, cl, err
}

// parseKey splits APP/ID at the first slash: ids may contain further ones.
func parseKey(text string) (registry.Key, error) {
	app, id, ok := strings.Cut(text, "/")
	if !ok || app == "" || id == "" {
		return registry.Key{}, fmt.Errorf("%q does not name an instance; write APP/ID, as ls shows them", text)
	}
	return registry.NewKey(app, id), nil
}
