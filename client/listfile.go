package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// lastKnownVersion is the version of the file's format.
const lastKnownVersion = 1

// lastKnown is the last list on disk, opt-in by DiscoveryConfig.File: Eureka's JSON (the response to GET apps) and the
// time when it was up to date (Unix ms, by this machine's clock). It is replaced as a whole, by a rename. Format:
// docs/reference/formats/client-list.md.
type lastKnown struct {
	path string
}

// lastKnownFile is the content of the file.
type lastKnownFile struct {
	Version  int             `json:"version"`
	App      string          `json:"app"`        // upper case; "" for all
	UpToDate int64           `json:"up_to_date"` // Unix ms
	List     json.RawMessage `json:"list"`       // Eureka's document of applications
}

// save replaces the file. app is the application that the list covers; "" means all.
func (f lastKnown) save(app string, s *Snapshot, upToDate time.Time) error {
	text, err := encodeLastKnown(strings.ToUpper(app), s, upToDate)
	if err == nil {
		err = replaceFile(f.path, text)
	}
	if err != nil {
		return fmt.Errorf("save the list of instances in %s: %w", f.path, err)
	}
	return nil
}

func encodeLastKnown(app string, s *Snapshot, upToDate time.Time) ([]byte, error) {
	text, err := json.Marshal(lastKnownFile{
		Version: lastKnownVersion, App: app, UpToDate: upToDate.UnixMilli(),
		List: eureka.AppendApplications(nil, eureka.Format{}, eureka.FullVersion, s.HashCode(), leasesOf(s)),
	})
	return append(text, '\n'), err
}

// leasesOf yields the instances of a list as Eureka's documents show them.
func leasesOf(s *Snapshot) iter.Seq[*registry.Lease] {
	return func(yield func(*registry.Lease) bool) {
		for i := range s.All() {
			if !yield(&registry.Lease{Instance: i, Interval: i.RenewalInterval, Duration: i.Duration}) {
				return
			}
		}
	}
}

// load reads the file. It returns fs.ErrNotExist before the first save. Any other error names the file and what is
// wrong with it (damaged, of another application, of a newer version). A time in the future, as after a clock was set
// back, counts as now.
func (f lastKnown) load(app string) (s *Snapshot, upToDate time.Time, err error) {
	text, err := os.ReadFile(f.path)
	if err == nil {
		s, upToDate, err = readLastKnown(text, strings.ToUpper(app))
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("load the list of instances from %s: %w", f.path, err)
	}
	if now := time.Now(); upToDate.After(now) {
		upToDate = now
	}
	return s, upToDate, nil
}

func readLastKnown(text []byte, app string) (*Snapshot, time.Time, error) {
	file, err := decodeLastKnown(text)
	if err != nil {
		return nil, time.Time{}, err
	}
	if file.App != app {
		return nil, time.Time{}, fmt.Errorf("it holds %s, not %s; each list needs a file of its own", named(file.App), named(app))
	}
	s, err := decodeList(file.List)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("it is damaged: %w", err)
	}
	return s, time.UnixMilli(file.UpToDate), nil
}

// decodeLastKnown reads everything in the file except its list. Every version has its number in the same place.
func decodeLastKnown(text []byte) (file lastKnownFile, err error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return file, fmt.Errorf("it is damaged: %w", err)
	}
	if head.Version > lastKnownVersion {
		return file, fmt.Errorf("it was written by a newer version of this package: its format is %d, the newest known one %d", head.Version, lastKnownVersion)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	switch err := decoder.Decode(&file); {
	case err != nil:
		return file, fmt.Errorf("it is damaged: %w", err)
	case file.Version != lastKnownVersion:
		return file, fmt.Errorf("it is damaged: its version is %d", file.Version)
	case file.UpToDate <= 0:
		return file, fmt.Errorf("it is damaged: up_to_date is %d", file.UpToDate)
	}
	return file, nil
}

// decodeList reads Eureka's document of applications, whose hash must match.
func decodeList(document []byte) (*Snapshot, error) {
	apps, err := eureka.DecodeApplications(document)
	if err != nil {
		return nil, err
	}
	edit := new(Snapshot).edit()
	for _, l := range apps.Leases {
		edit.set(l.Instance)
	}
	s := edit.list()
	if s.HashCode() != apps.HashCode {
		return nil, fmt.Errorf("its list has the hash %q and says %q", s.HashCode(), apps.HashCode)
	}
	return s, nil
}

// named says which instances a list has.
func named(app string) string {
	if app == "" {
		return "all applications"
	}
	return "application " + app
}

// saver keeps a Discovery's list on disk, by a goroutine of its own: no refresh waits for a slow disk.
type saver struct {
	discovery *Discovery
	disk      lastKnown
	wake      chan struct{} // the list may have changed

	// Owned by the goroutine.
	saved  *Snapshot // the list on disk; nil while the disk has no usable one
	asOf   time.Time // of the list on disk
	outage wait.Outage
}

// request has the list saved if it differs from the file's.
func (f *saver) request() {
	select {
	case f.wake <- struct{}{}:
	default: // an earlier request is still pending
	}
}

// run saves the list after changes, at most once per interval, and at the end if it is newer than the file.
func (f *saver) run(ctx context.Context) {
	for alive := true; alive; {
		select {
		case <-f.wake:
			list, asOf := f.discovery.dated()
			if list != f.saved {
				f.save(list, asOf)
			}
			alive = wait.For(ctx, f.discovery.config.Interval)
		case <-ctx.Done():
			alive = false
		}
	}
	if list, asOf := f.discovery.dated(); list != f.saved || asOf.After(f.asOf) {
		f.save(list, asOf)
	}
}

// save replaces the file. After a failure it tries again an interval later.
func (f *saver) save(list *Snapshot, asOf time.Time) {
	app := f.discovery.app
	err := f.disk.save(app, list, asOf)
	f.outage.Report(err, "the list of instances cannot be saved, trying again",
		"the list of instances is saved again", "app", app, "file", f.disk.path)
	if err != nil {
		f.request()
		return
	}
	f.saved, f.asOf = list, asOf
}

// replaceFile writes a file so that a crash leaves the old one or the new one. Only its owner may read
// it: metadata of instances may hold secrets.
func replaceFile(path string, content []byte) error {
	// A unique name: a process and its successor may write at the same time.
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err == nil {
		// Before the rename: otherwise a loss of power could leave an empty file under the name. Losing the rename
		// itself does no harm: the old list is a list too.
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
