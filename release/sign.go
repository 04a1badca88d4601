package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
)

const repository = "https://github.com/seed-20419f34/rollcall"

// publicKeyFile is the public half of the key that signs releases, below the main module.
const publicKeyFile = "release/minisign.pub"

// readKey reads the private key that signs a release, with its password if there is a file with one. Its public half
// must be the one that users verify with.
func readKey(root, key, password string) (signer minisign.PrivateKey, err error) {
	text := []byte{}
	if password != "" {
		if text, err = os.ReadFile(password); err != nil {
			return signer, fmt.Errorf("--sign-password-file: %w", err)
		}
	}
	sealed, err := os.ReadFile(key)
	if err != nil {
		return signer, fmt.Errorf("--sign-key: %w", err)
	}
	if minisign.IsEncrypted(sealed) {
		signer, err = minisign.DecryptKey(strings.TrimRight(string(text), "\r\n"), sealed)
	} else {
		err = signer.UnmarshalText(sealed)
	}
	if err != nil {
		return signer, fmt.Errorf("--sign-key %s must be a minisign private key, and --sign-password-file must have its password: %w", key, err)
	}
	published, err := minisign.PublicKeyFromFile(filepath.Join(root, publicKeyFile))
	if err != nil {
		return signer, fmt.Errorf("the public key that users verify with: %w", err)
	}
	if !published.Equal(signer.Public()) {
		return signer, fmt.Errorf("--sign-key %s belongs to the public key %v, and %s has %v", key, signer.Public(), publicKeyFile, published)
	}
	return signer, nil
}

// sign signs the checksums, and so all files. The same key and release give the same signature.
func (r *release) sign(key minisign.PrivateKey) error {
	sums := filepath.Join(r.out, sumsFile)
	text, err := os.ReadFile(sums)
	if err != nil {
		return err
	}
	comment := fmt.Sprintf("rollcall %s, commit %s of %s", r.number, r.commitID, r.commit.Format("2006-01-02"))
	return os.WriteFile(sums+".minisig", minisign.SignWithComments(key, text, comment, "verify with "+publicKeyFile+" of "+repository), 0o644)
}

// statement is an in-toto statement with a SLSA provenance, both version 1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []artifact `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type artifact struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

type provenance struct {
	BuildDefinition struct {
		BuildType            string         `json:"buildType"`
		ExternalParameters   map[string]any `json:"externalParameters"`
		InternalParameters   map[string]any `json:"internalParameters"`
		ResolvedDependencies []artifact     `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// writeProvenance records from which commit, with which Go and which settings the files of the release were built.
func (r *release) writeProvenance(built []target) error {
	sums, err := sumsOf(r.out)
	if err != nil {
		return err
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, f := range sums {
		s.Subject = append(s.Subject, artifact{Name: f.name, Digest: map[string]string{"sha256": f.sum}})
	}
	var platforms []string
	for _, t := range built {
		platforms = append(platforms, t.os+"/"+t.arch)
	}
	d := &s.Predicate.BuildDefinition
	d.BuildType = repository + "/blob/" + r.commitID + "/docs/release.md"
	d.ExternalParameters = map[string]any{"version": r.version, "targets": platforms}
	d.InternalParameters = map[string]any{"go": built[0].goVersion, "settings": settings}
	d.ResolvedDependencies = []artifact{{URI: "git+" + repository, Digest: map[string]string{"gitCommit": r.commitID}}}
	s.Predicate.RunDetails.Builder.ID = repository + "/tree/" + r.commitID + "/release"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.name("provenance.json"), append(text, '\n'), 0o644)
}
