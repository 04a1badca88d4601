package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// writeArchive writes the archive of a platform: a folder with the programs and accompanying files.
func (r *release) writeArchive(t target) error {
	base := r.name(t.os + "_" + t.arch)
	files := slices.Clone(r.shared)
	for _, program := range t.programs {
		data, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		files = append(files, file{name: filepath.Base(program), mode: 0o755, data: data})
	}
	for i := range files {
		files[i].name = filepath.Base(base) + "/" + files[i].name
	}
	if t.os == "windows" {
		packed, err := zipped(files, r.commit)
		if err != nil {
			return err
		}
		return os.WriteFile(base+".zip", packed, 0o644)
	}
	packed, err := tarred(files, r.commit)
	if err != nil {
		return err
	}
	return os.WriteFile(base+".tar.gz", gzipped(packed), 0o644)
}

// tarred archives files, sorted, with their owners. A name that ends in a slash is a folder.
func tarred(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range sorted(files) {
		h := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: at, Uid: f.owner, Gid: f.owner, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func zipped(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range sorted(files) {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		to, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(to, bytes.NewReader(f.data)); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(a.name, b.name) })
}
