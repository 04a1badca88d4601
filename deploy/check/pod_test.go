package check

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	core "k8s.io/api/core/v1"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// built is the directory of what the tests make for each other; it goes with them.
var built string

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelWarn) // Helm says that it follows links
	var err error
	if built, err = os.MkdirTemp("", "rollcall-check"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// build builds the program once, without cgo, as it is in the image.
var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "rollcall")
	command := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/rollcall")
	command.Dir, command.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return path, nil
})

func program(t *testing.T) string {
	t.Helper()
	return need.Got(build())(t)
}

// authority signs the certificates of all pods.
var authority = sync.OnceValues(func() (*certfiles.Authority, error) {
	a, _, err := certfiles.NewAuthority("nodes", time.Now())
	return a, err
})

// The user of the image.
const user = 65532

// container is a container with what is mounted in front of it, below a directory that stands for its root.
type container struct {
	root      string
	args, env []string
	process   *exec.Cmd
	ended     chan error // the end of the process
}

// newPod lays out the container of a pod as the kubelet does.
func newPod(t *testing.T, all objects, name string, spec core.PodSpec) *container {
	t.Helper()
	c := &container{root: t.TempDir()}
	volumes := map[string]core.Volume{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = v
	}
	runs := spec.Containers[0]
	for _, m := range runs.VolumeMounts {
		dir := c.mount(t, m.MountPath)
		switch v := volumes[m.Name]; {
		case v.ConfigMap != nil:
			for file, text := range of[*core.ConfigMap](t, all, "ConfigMap "+v.ConfigMap.Name).Data {
				need.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
			}
		case v.Secret != nil && m.Name == "tls":
			writeSecrets(t, dir, certificate(t, all), v.Secret.DefaultMode)
		case v.Secret != nil:
			writeSecrets(t, dir, need.Got(tokens())(t), v.Secret.DefaultMode)
		default: // the group may write, because of fsGroup
			need.OK(t, os.Chmod(dir, 0o770))
			chown(t, dir)
		}
	}
	values := map[string]string{}
	for _, e := range runs.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{"metadata.name": name}[e.ValueFrom.FieldRef.FieldPath]
		}
		for known, is := range values { // those that stand before it
			value = strings.ReplaceAll(value, "$("+known+")", is)
		}
		values[e.Name] = value
		c.env = append(c.env, e.Name+"="+value)
	}
	c.args = runs.Args
	return c
}

func (c *container) mount(t *testing.T, path string) (dir string) {
	t.Helper()
	dir = filepath.Join(c.root, path)
	need.OK(t, os.MkdirAll(dir, 0o755))
	return dir
}

// chown gives a file to the image's group, if the test may.
func chown(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() == 0 {
		need.OK(t, os.Chown(path, 0, user))
	}
}

func writeSecrets(t *testing.T, dir string, files map[string]string, mode *int32) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		need.OK(t, os.WriteFile(path, []byte(text), 0o600))
		need.OK(t, os.Chmod(path, os.FileMode(*mode)))
		chown(t, path)
	}
}

// below has the paths of a text, of whatever is mounted, lead below the container's root, for tests that run outside.
func (c *container) below(text string) string {
	return strings.NewReplacer("/etc/rollcall/", c.root+"/etc/rollcall/", "/var/lib/rollcall/", c.root+"/var/lib/rollcall/").Replace(text)
}

// certificate is a certificate as cert-manager makes it, for the names that the chart asks for; without a Certificate, for those of the
// chart's README.
func certificate(t *testing.T, all objects) map[string]string {
	t.Helper()
	names := []string{"rollcall-0", "rollcall-1", "rollcall-2", "*.rollcall-nodes.registry.svc", "rollcall.registry.svc"}
	if c, ok := all["Certificate rollcall"].(*certmanager.Certificate); ok {
		names = c.Spec.DNSNames
	}
	a := need.Got(authority())(t)
	pair := need.Got(a.Issue(names[0], names[1:], time.Hour, time.Now()))(t)
	return map[string]string{"tls.crt": string(pair.Cert), "tls.key": string(pair.Key), "ca.crt": string(a.PEM())}
}

// tokens are the texts of tokens, and the file with their hashes, as the chart's README has people make them.
var tokens = sync.OnceValues(func() (map[string]string, error) {
	path, err := build()
	if err != nil {
		return nil, err
	}
	texts, file := map[string]string{}, `roles:
  reader: ["metrics read", "operator read"]
  writer: ["kv * read,write"]
  service: ["app ORDERS read,register"]
  node: ["peer dc1 exchange", "peer dc7 exchange"]
tokens:
`
	for _, each := range []struct{ name, role string }{
		{"bootstrap", ""}, {"reader", "reader"}, {"writer", "writer"}, {"service", "service"}, {"dc8", "node"},
		{"rollcall-0", "node"}, {"rollcall-1", "node"}, {"rollcall-2", "node"},
	} {
		text := filepath.Join(built, each.name)
		args := []string{"auth", "hash", "--name", each.name, "--out", text}
		if each.role != "" {
			args = append(args, "--role", each.role)
		}
		lines, err := exec.Command(path, args...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", args, err)
		}
		if each.role != "" {
			file += string(lines)
		}
		token, err := os.ReadFile(text)
		if err != nil {
			return nil, err
		}
		texts[each.name] = string(token)
	}
	texts["auth.yaml"] = file
	return texts, nil
})
