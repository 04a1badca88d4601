package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// keys writes a new pair of keys: the public one where users find it below root, the private one elsewhere.
func keys(t *testing.T, root string) (signer minisign.PrivateKey, file string) {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	need.OK(t, err)
	need.OK(t, os.MkdirAll(filepath.Join(root, "release"), 0o755))
	need.OK(t, os.WriteFile(filepath.Join(root, publicKeyFile), need.Got(public.MarshalText())(t), 0o600))
	file = filepath.Join(t.TempDir(), "key")
	need.OK(t, os.WriteFile(file, need.Got(private.MarshalText())(t), 0o600))
	return private, file
}

// The command of docs/release.md, with a minisign in the path, says of each file whether it is that of the release.
func TestCommandOfThePageVerifiesSignatureAndFiles(t *testing.T) {
	page := string(need.Got(os.ReadFile("../docs/release.md"))(t))
	_, command, _ := strings.Cut(page, "```sh\n")
	command, _, _ = strings.Cut(command, "```")
	bin := t.TempDir()
	output(t, "go", "build", "-o", filepath.Join(bin, "minisign"), "aead.dev/minisign/cmd/minisign")
	r := &release{root: t.TempDir(), out: t.TempDir(), version: "v9.9.9", number: "9.9.9", commit: commitTime, commitID: strings.Repeat("ab", 20)}
	_, file := keys(t, r.root)
	key := need.Got(readKey(r.root, file, ""))(t)
	write := func(name string, text []byte) {
		need.OK(t, os.WriteFile(filepath.Join(r.out, name), text, 0o600))
	}
	read := func(name string) []byte { return need.Got(os.ReadFile(filepath.Join(r.out, name)))(t) }
	write("rollcall_9.9.9_linux_amd64.tar.gz", []byte("an archive"))
	need.OK(t, r.writeProvenance([]target{{os: "linux", arch: "amd64", goVersion: "go1.26.0"}}))
	need.OK(t, writeSums(r.out))
	need.OK(t, r.sign(key))
	before := read("SHA256SUMS.minisig")
	need.OK(t, r.sign(key))
	expect.Equal(t, string(read("SHA256SUMS.minisig")), string(before), "the second signature")
	write("minisign.pub", need.Got(os.ReadFile(filepath.Join(r.root, publicKeyFile)))(t))

	verify := func() error {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
		cmd.Dir, cmd.Env = r.out, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		t.Logf("%v: %s", err, out)
		return err
	}
	expect.OK(t, verify())
	var s statement
	need.OK(t, json.Unmarshal(read("rollcall_9.9.9_provenance.json"), &s))
	expect.That(t, len(s.Subject) == 1 && s.Subject[0].Name == "rollcall_9.9.9_linux_amd64.tar.gz" && len(s.Subject[0].Digest["sha256"]) == 64 &&
		s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] == r.commitID, "provenance: %+v", s)
	for _, name := range []string{"rollcall_9.9.9_linux_amd64.tar.gz", "rollcall_9.9.9_provenance.json", "SHA256SUMS", "SHA256SUMS.minisig"} {
		whole := read(name)
		tampered := []byte(strings.Replace(string(whole), "9.9.9", "9.9.8", 1))
		if strings.HasSuffix(name, ".gz") {
			tampered = []byte("another archive")
		}
		write(name, tampered)
		expect.That(t, string(tampered) != string(whole) && verify() != nil, "%s was changed, and the command found nothing", name)
		write(name, whole)
	}
	_, other := keys(t, t.TempDir())
	_, err := readKey(r.root, other, "")
	expect.ErrorSays(t, err, "belongs to the public key", "the key of somebody else:")
}

func TestKeyOfAReleaseMayHaveAPassword(t *testing.T) {
	root, password := t.TempDir(), filepath.Join(t.TempDir(), "password")
	need.OK(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	private, file := keys(t, root)
	need.OK(t, os.WriteFile(file, need.Got(minisign.EncryptKey("correct horse", private))(t), 0o600))
	key, err := readKey(root, file, password)
	expect.That(t, err == nil && key.Equal(private), "read with its password: %v", err)
}
