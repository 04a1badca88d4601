package client

import (
	"errors"
	"os"
	"path/filepath"
)

// replaceFile writes a file so that a crash leaves the old one or the new one. Only its owner may read
// it: metadata of instances may hold secrets.
func replaceFile(path string, content []byte) error {
	// A name of its own: a process and its successor may write at the same time.
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err == nil {
		// Before the rename, or else a loss of power could leave an empty file under the name. That the
		// rename itself may be lost does no harm: the old list is a list too.
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
