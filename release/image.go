package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user and group of the image: the number that images without a system use.
const imageUser = 65532

// imageTag returns a number in the form of image tags, which must not contain + or ~.
func imageTag(number string) string { return strings.NewReplacer("+", "-", "~", "-").Replace(number) }

// writeImages writes one archive in OCI's layout, with an image for each Linux among the targets.
func (r *release) writeImages(targets []target) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		image, err := r.image(t)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: t.os, Architecture: t.arch}}})
	}
	dir := filepath.Join(r.work, "image")
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tag := imageTag(r.number)
	names := map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": "rollcall:" + tag}
	if err := to.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	var files []file
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files = append(files, plain(name, data))
		return err
	})
	packed, tarErr := tarred(files, r.commit)
	if err := errors.Join(err, tarErr); err != nil {
		return err
	}
	return os.WriteFile(r.name("image.tar"), packed, 0o644)
}

// image builds an image from nothing: the program, the authorities that browsers trust, and a directory for data.
func (r *release) image(t target) (v1.Image, error) {
	program, err := os.ReadFile(t.programs[0])
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	system, err := tarred([]file{
		plain("etc/ssl/certs/ca-certificates.crt", roots.Bytes()),
		plain("etc/passwd", []byte("rollcall:x:65532:65532:Rollcall:/var/lib/rollcall:/none\n")),
		plain("etc/group", []byte("rollcall:x:65532:\n")),
		{name: "usr/bin/rollcall", mode: 0o755, data: program},
		plain("usr/share/doc/rollcall/LICENSE", r.licence),
		plain("usr/share/doc/rollcall/THIRD-PARTY.txt", r.ofImage.text()),
		{name: "var/lib/rollcall/", mode: 0o700, owner: imageUser},
	}, r.commit)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(system)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.commit}, CreatedBy: "release"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = t.os, t.arch, v1.Time{Time: r.commit}
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/usr/bin/rollcall"}, Cmd: []string{"server", "--data-dir=/var/lib/rollcall/data"}, WorkingDir: "/var/lib/rollcall",
		Env:          []string{"PATH=/usr/bin"}, // no setting: it would take precedence over a mounted file
		ExposedPorts: map[string]struct{}{"8761/tcp": {}}, Volumes: map[string]struct{}{"/var/lib/rollcall": {}},
		Labels: map[string]string{"org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source": home},
	}
	return mutate.ConfigFile(image, config)
}
