package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// lastKnownVersion is the version of the file's format.
const lastKnownVersion = 1

// lastKnown is the last list on disk, opt-in by DiscoveryConfig.File: JSON of Eureka's (the answer to
// GET apps) beside when it was up to date (Unix ms, by this machine's clock). It is replaced as a whole,
// by a rename. Format: docs/formats/client-list.md.
type lastKnown struct {
	path string
}

// lastKnownFile is the content of the file.
type lastKnownFile struct {
	Version  int             `json:"version"`
	App      string          `json:"app"`        // upper case; "": all
	UpToDate int64           `json:"up_to_date"` // Unix ms
	List     json.RawMessage `json:"list"`       // Eureka's document of applications
}

// save replaces the file. app is the application that the list is of; "": all.
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

// load reads the file. fs.ErrNotExist: there is none yet. Any other error names the file and what is
// wrong with it (damaged, of another application, of a newer version). A time in the future, which is
// what a clock that was set back makes of it, counts as now.
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
		return nil, time.Time{}, fmt.Errorf("it is of %s, not of %s; each list needs a file of its own", named(file.App), named(app))
	}
	s, err := decodeList(file.List)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("it is damaged: %w", err)
	}
	return s, time.UnixMilli(file.UpToDate), nil
}

// decodeLastKnown reads the file but for its list. Every version has its number in the same place.
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

// decodeList reads Eureka's document of applications, whose hash must fit.
func decodeList(document []byte) (*Snapshot, error) {
	apps, err := eureka.DecodeApplications(document)
	if err != nil {
		return nil, err
	}
	edit := new(Snapshot).edit()
	for _, l := range apps.Leases {
		edit.put(l.Instance)
	}
	s := edit.snapshot()
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
