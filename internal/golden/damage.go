package golden

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// Damages is how many times a file is damaged.
const Damages = 80

// damages returns n ways to damage a file, all different.
func damages(rng *rand.Rand, n int) []func(b []byte) []byte {
	const page = 4096
	kinds := []func(b []byte) []byte{
		func(b []byte) []byte { return nil },
		func(b []byte) []byte { return b[:rng.IntN(len(b))] },
		func(b []byte) []byte { return b[:rng.IntN(len(b)/page)*page] },
		func(b []byte) []byte { clear(b[rng.IntN(len(b)/page)*page:][:page]); return b },
		func(b []byte) []byte {
			copy(b[rng.IntN(len(b)/page)*page:][:page], b[rng.IntN(len(b)/page)*page:][:page])
			return b
		},
		func(b []byte) []byte { b[rng.IntN(2*page)] ^= 1 << rng.IntN(8); return b },
		func(b []byte) []byte { b[rng.IntN(2)*page+rng.IntN(80)] ^= 1 << rng.IntN(8); return b },
		func(b []byte) []byte { b[rng.IntN(len(b)/page)*page+rng.IntN(128)] ^= 1 << rng.IntN(8); return b },
	}
	all := make([]func(b []byte) []byte, n)
	for i := range all {
		all[i] = func(b []byte) []byte { b[rng.IntN(len(b))] ^= 1 << rng.IntN(8); return b }
		if i%2 == 0 {
			all[i] = kinds[i/2%len(kinds)]
		}
	}
	return all
}

// EachDamage calls check with copies of a directory whose file was damaged. how says in words what was done.
func EachDamage(t *testing.T, dir, file string, check func(t *testing.T, dir string, how string)) {
	whole := need.Got(os.ReadFile(filepath.Join(dir, file)))(t)
	for i, damage := range damages(rand.New(rand.NewPCG(1, 2)), Damages) {
		b := damage(bytes.Clone(whole))
		need.OK(t, os.WriteFile(filepath.Join(dir, file), b, 0o600))
		how := fmt.Sprintf("damage %d: %d of %d bytes", i, len(b), len(whole))
		for at := range b {
			if b[at] != whole[at] {
				how += fmt.Sprintf(", byte %d is %#x instead of %#x", at, b[at], whole[at])
				break
			}
		}
		check(t, dir, how)
	}
}
