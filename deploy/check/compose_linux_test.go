package check

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const composeDir = "../compose"

func compose(t *testing.T) *types.Project {
	t.Helper()
	options := need.Got(cli.NewProjectOptions([]string{filepath.Join(composeDir, "compose.yaml")}, cli.WithProfiles([]string{"*"})))(t)
	return need.Got(options.LoadProject(context.Background()))(t)
}

func TestComposeMountsFilesThatAreThere(t *testing.T) {
	for name, service := range compose(t).Services {
		for _, v := range service.Volumes {
			if v.Type == types.VolumeTypeBind {
				expect.OKf(t, expect.Err(os.Stat(v.Source)), "%s mounts", name)
			}
		}
		for _, port := range service.Ports {
			expect.Equal(t, port.HostIP, "127.0.0.1", "%s is open at", name)
		}
	}
}

// TestComposeRunsACluster starts the services of the nodes as Compose does, but for the addresses, and asks as their health checks do.
func TestComposeRunsACluster(t *testing.T) {
	n := newNetwork(t)
	project := compose(t)
	nodes := map[string]*container{}
	for _, name := range []string{"n1", "n2", "n3"} {
		service := project.Services[name]
		c := &container{root: t.TempDir(), args: service.Command}
		address := n.address()
		for key, value := range service.Environment {
			if text, ok := strings.CutPrefix(*value, ":"); ok { // all addresses
				*value = address + ":" + text
			}
			c.env = append(c.env, key+"="+*value)
		}
		data := c.mount(t, service.Volumes[0].Target)
		need.OK(t, os.Chown(data, user, user))
		n.set(t, name, address)
		nodes[name] = c
	}
	for _, c := range nodes {
		n.start(t, c)
	}
	for name, c := range nodes {
		check := project.Services[name].HealthCheck.Test
		need.That(t, check[0] == "CMD" && check[1] == "rollcall", "the health check is %q", check)
		await(t, name+" is healthy", func() error { return n.command(t, c, check[2:]...).Run() })
	}
	out, err := n.command(t, nodes["n1"], "register", "orders", "--id", "orders-1", "--port", "8080").CombinedOutput()
	need.OKf(t, err, "register: %s", out)
	out, err = n.command(t, nodes["n3"], "ls", "orders").CombinedOutput()
	expect.That(t, err == nil && strings.Contains(string(out), "orders-1"), "n3 lists %s, %v", out, err)
	t.Run("a Spring service", func(t *testing.T) { springRegisters(t, n, project.Services["orders"], nodes["n2"]) })
	for name, c := range nodes {
		n.stop(t, c, time.Duration(*project.Services[name].StopGracePeriod))
	}
}

// springRegisters has an application with Spring Cloud's client register by the environment of the example.
func springRegisters(t *testing.T, n *network, service types.ServiceConfig, at *container) {
	t.Helper()
	driver := need.Got(filepath.Abs("../../integration/clients/java/spring/target/driver.jar"))(t)
	_, err := os.Stat(driver)
	need.Present(t, err == nil, "the Spring application is not built: make clients")
	command := exec.CommandContext(t.Context(), "java", "-jar", driver)
	command.Env = os.Environ()
	for key, value := range service.Environment {
		text := *value
		for _, name := range []string{"n1", "n2", "n3"} { // whose names only the containers know
			text = strings.ReplaceAll(text, "//"+name+":", "//"+n.addresses(name)[0]+":")
		}
		command.Env = append(command.Env, key+"="+text)
	}
	stdin := need.Got(command.StdinPipe())(t)
	need.OK(t, command.Start())
	defer command.Wait()
	defer stdin.Close()
	need.OK(t, expect.Err(io.WriteString(stdin, `{"do": "start", "url": "http://127.0.0.1:1/eureka", "app": "OTHER", "id": "spring-1", "lease": "30"}`+"\n")))
	await(t, "the Spring service is listed", func() error {
		return n.command(t, at, "explain", "ORDERS/spring-1").Run()
	})
}

// TestPrometheusAcceptsTheExample has Prometheus' own program read the configuration where it is mounted.
func TestPrometheusAcceptsTheExample(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	need.Present(t, err == nil, "promtool is not on the PATH: apt-get install prometheus")
	service := compose(t).Services["prometheus"]
	root := t.TempDir()
	for _, v := range service.Volumes {
		text := need.Got(os.ReadFile(v.Source))(t)
		path := filepath.Join(root, v.Target)
		need.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		need.OK(t, os.WriteFile(path, text, 0o600))
	}
	file, ok := strings.CutPrefix(service.Command[0], "--config.file=")
	need.That(t, ok, "Prometheus runs %q", service.Command)
	out, err := exec.Command(promtool, "check", "config", filepath.Join(root, file)).CombinedOutput()
	expect.OKf(t, err, "promtool: %s", out)
	expect.That(t, strings.Contains(string(out), "1 rule files found"), "promtool says %s", out)
}
