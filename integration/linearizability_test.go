package integration

import (
	"os"
	"testing"

	"github.com/anishathalye/porcupine"
)

// visualizeAs writes the history as a page for people, and returns its path.
func visualizeAs(t *testing.T, model porcupine.Model, info porcupine.LinearizationInfo) string {
	t.Helper()
	file, err := os.CreateTemp("", "rollcall-history-*.html")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if err := porcupine.Visualize(model, info, file); err != nil {
		return err.Error()
	}
	return "open " + file.Name()
}
