package main

// ChecksConfig is what a leader does about the HTTP and TCP checks that services are registered with
// through Consul's API.
type ChecksConfig struct {
	Probes        bool `yaml:"probes" help:"mode cp: the leader runs HTTP and TCP checks; false: they stay as clients set them"`
	AllowLoopback bool `yaml:"allow-loopback" help:"checks may name loopback addresses of the leader's machine; default: whether http.addr is one. Link-local, multicast and metadata addresses are never probed"`
}
