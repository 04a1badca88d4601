package config

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
)

// NewTokenText makes the text of a new token, or (accessor) another one of a token that there is, for any cluster.
func NewTokenText(accessor string) string {
	var random [access.RandomBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	return access.NewText(random, accessor, "")
}

// TokenOf returns the token of a text that NewText made. Its errors do not repeat the text.
func TokenOf(text string) (*access.Token, error) {
	accessor, hash, err := access.Parse(text, "")
	if err != nil {
		return nil, err
	}
	return &access.Token{Accessor: accessor, Secrets: []access.Secret{{Hash: hash}}}, nil
}

// maxText is more than any token's text has, in bytes.
const maxText = 1024

// ReadToken reads a file with one text that NewText made, such as a Kubernetes secret. Its errors do not repeat the
// text.
func ReadToken(path string) (*access.Token, error) {
	text, err := certfiles.ReadPrivate(path, maxText)
	if err != nil {
		return nil, err
	}
	k, err := TokenOf(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; rollcall auth hash makes one", path, err)
	}
	return k, nil
}

// item is a token as written in the file.
type item struct {
	Accessor string   `yaml:"accessor"`
	Name     string   `yaml:"name"`
	Roles    []string `yaml:"roles,flow,omitempty"`
	App      string   `yaml:"app,omitempty"`
	Hashes   []string `yaml:"hashes"`
	Expires  string   `yaml:"expires,omitempty"`
}

// TokenItem is a token as it stands in the list of tokens of a file.
func TokenItem(k *access.Token) ([]byte, error) {
	i := item{Accessor: k.Accessor, Name: k.Name, Roles: k.Roles, App: k.App}
	for _, s := range k.Secrets {
		i.Hashes = append(i.Hashes, hex.EncodeToString(s.Hash[:]))
	}
	if k.Expires != 0 {
		i.Expires = time.UnixMilli(k.Expires).UTC().Format(time.RFC3339)
	}
	return yaml.Marshal([]item{i})
}
