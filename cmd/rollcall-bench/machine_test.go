package main

import "testing"

func TestTheMountOfAPathIsFound(t *testing.T) {
	const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 / /data rw shared:1 master:2 - tmpfs tmpfs rw
31 27 8:1 / /data rw - xfs /dev/sda1 rw
broken line
`
	for path, want := range map[string]mount{
		"/home/x":   {"/", "254:0", "ext4", "/dev/vda"},
		"/data":     {"/data", "8:1", "xfs", "/dev/sda1"},
		"/data/x":   {"/data", "8:1", "xfs", "/dev/sda1"},
		"/database": {"/", "254:0", "ext4", "/dev/vda"},
	} {
		if got, ok := findMount(mountinfo, path); !ok || got != want {
			t.Errorf("%s: got %+v, %t, want %+v", path, got, ok, want)
		}
	}
	if got, ok := findMount("", "/"); ok {
		t.Errorf("without mounts: got %+v", got)
	}
}

func TestTheMachineIsDescribedWithoutNamingIt(t *testing.T) {
	if got := kernelText("linux", "6.1.2-site-7"); got != "Linux 6.1.2" {
		t.Errorf("kernel: %q", got)
	}
	if got := kernelText("darwin", ""); got != "Darwin" {
		t.Errorf("kernel of another system: %q", got)
	}
	if got := memoryText("24101112 kB"); got != "23 GiB" {
		t.Errorf("memory: %q", got)
	}
	if got := memoryText(unknownPart); got != unknownPart {
		t.Errorf("unknown memory: %q", got)
	}
	m, err := describeMachine(t.TempDir())
	if err != nil || m.Cores < 1 || m.Go == "" || m.CPU == "" || m.Disk == "" || m.Sync == "" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestMetricsAreReadByTheirWholeName(t *testing.T) {
	const text = "# HELP heap_bytes x\nheap_bytes_total 7\nheap_bytes 1.5e+06\n"
	if got, err := metricValue(text, "heap_bytes"); err != nil || got != 1.5e6 {
		t.Errorf("got %f, %v", got, err)
	}
	if _, err := metricValue(text, "heap"); err == nil {
		t.Error("a metric that is not there was found")
	}
}
