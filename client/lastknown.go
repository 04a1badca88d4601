package client

import (
	"time"
)

// lastKnown is the last list on disk, opt-in by DiscoveryConfig.File: JSON of Eureka's (the answer to
// GET apps) beside when it was up to date (Unix ms, by this machine's clock). It is replaced as a whole, by a rename.
type lastKnown struct {
	path string
}

// save replaces the file. app is the application that the list is of; "": all.
func (f lastKnown) save(app string, s *Snapshot, upToDate time.Time) error { panic("not written") }

// load reads the file. fs.ErrNotExist: there is none yet. Any other error names the file and what is
// wrong with it (damaged, of another application, of a newer version).
func (f lastKnown) load(app string) (s *Snapshot, upToDate time.Time, err error) {
	panic("not written")
}
