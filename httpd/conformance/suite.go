package conformance

import (
	"io/fs"
	"testing"
)

// Target is a server to test.
type Target struct {
	// URL is its scheme and host; Eureka's resources are under /eureka, /eureka/v1, /eureka/v2 and /v2.
	URL string
	// Fixtures holds register-*.json and register-*.xml, bodies of real clients' registrations, and
	// decoder-matrix.json, spellings of a registration of ORDERS and the answers to them.
	Fixtures fs.FS
	// Consensus: reads are linearizable unless they ask for less. A server without answers with what
	// it has, and refuses to promise more.
	Consensus bool
}

// Run runs the suite.
func Run(t *testing.T, target Target) {
	t.Cleanup(transport.CloseIdleConnections)
	for _, group := range [][]check{traps, writes, reads, renewals, overrides, registrations, batches, others, freshness, watches, acts} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) { c.run(t, newClient(t, target)) })
		}
	}
	t.Run("EveryClientsRegistrationIsShownInBothForms", func(t *testing.T) { registerFixtures(t, target) })
	t.Run("EverySpellingOfARegistrationIsAnsweredAsItShould", func(t *testing.T) { registerSpellings(t, target) })
}

// check is one behaviour.
type check struct {
	name string
	run  func(t *testing.T, c *client)
}
