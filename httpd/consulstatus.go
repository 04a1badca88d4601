package httpd

import "net/http"

// statusRoutes adds Consul's API of the cluster's state.
func (h *Handler) statusRoutes() {
	h.consulRoute("/v1/status/leader", h.statusLeader, http.MethodGet)
	h.consulRoute("/v1/status/peers", h.statusPeers, http.MethodGet)
}

// statusLeader is GET status/leader: its node-to-node address, or "". Programs poll it while they start.
func (h *Handler) statusLeader(w http.ResponseWriter, r *http.Request) error {
	leader, _ := h.config.Coordination.RaftAddresses()
	return respondConsul(w, r, leader)
}

// statusPeers is GET status/peers: the voters' node-to-node addresses.
func (h *Handler) statusPeers(w http.ResponseWriter, r *http.Request) error {
	_, all := h.config.Coordination.RaftAddresses()
	return respondConsul(w, r, append([]string{}, all...)) // an empty list, not null
}
