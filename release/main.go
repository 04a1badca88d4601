// Command release makes a release of Rollcall from the commit that is checked out: archives, packages for Debian and
// for distributions with RPM, a container image, licences, lists of components, the provenance, checksums, and their
// signature. Two runs give the same bytes: every time is the commit's, every list is sorted, and no name of the
// machine is written. docs/release.md is for its users.
//
//	main.go       flags, and the order of the steps
//	build.go      programs, and accompanying files
//	licences.go   licences of everything in the programs, and lists of components
//	archive.go    tar.gz and zip
//	packages.go   deb and rpm
//	image.go      the container image
//	sign.go       the provenance, and the signature
//	costs.go      the table of what each dependency costs, in docs/dependencies.md
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"aead.dev/minisign"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := flag.String("root", "..", "directory of the main module")
	out := flag.String("out", "../dist", "directory to write into; what is there already is removed")
	version := flag.String("version", "", "version; empty: by git describe")
	targets := flag.String("targets", strings.Join(allTargets, ","), "platforms, as GOOS/GOARCH with commas between them")
	costs := flag.Bool("costs", false, "write only the table of what each dependency costs")
	key := flag.String("sign-key", "", "file with the minisign private key that signs the release; empty: the release is not signed")
	password := flag.String("sign-password-file", "", "file with the password of that key; empty: the key has none")
	flag.Parse()
	var err error
	if *costs {
		err = rewriteCosts(ctx, *root)
	} else {
		err = makeRelease(ctx, *root, *out, *version, strings.Split(*targets, ","), *key, *password)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// makeRelease writes everything into the directory out, and signs it if keyFile names a key.
func makeRelease(ctx context.Context, root, out, version string, targets []string, keyFile, passwordFile string) error {
	var key minisign.PrivateKey
	if keyFile != "" {
		var err error
		if key, err = readKey(root, keyFile, passwordFile); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp("", "rollcall-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r, err := newRelease(ctx, root, out, work, version)
	if err != nil {
		return err
	}
	if err := r.checkDeployed(); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	var built []target
	for _, name := range targets {
		t, err := r.build(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		built = append(built, t)
	}
	if err := r.makeShared(ctx, built); err != nil {
		return err
	}
	for _, t := range built {
		if err := errors.Join(r.writeComponents(t), r.writeArchive(t), r.writePackages(t)); err != nil {
			return fmt.Errorf("%s/%s: %w", t.os, t.arch, err)
		}
	}
	if err := r.writeImages(built); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := errors.Join(r.writeProvenance(built), writeSums(out)); err != nil || keyFile == "" {
		return err
	}
	return r.sign(key)
}

const sumsFile = "SHA256SUMS"

// summed is a file of a release.
type summed struct{ name, sum string }

// sumsOf returns the SHA-256 sums of all files, sorted by name.
func sumsOf(dir string) (sums []summed, err error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		sums = append(sums, summed{e.Name(), fmt.Sprintf("%x", h.Sum(nil))})
	}
	return sums, nil
}

// writeSums lists the sums of all files in the format of sha256sum.
func writeSums(dir string) error {
	sums, err := sumsOf(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range sums {
		fmt.Fprintf(&text, "%s  %s\n", f.sum, f.name)
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(text.String()), 0o644)
}
