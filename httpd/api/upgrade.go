package api

// Upgrade is where a cluster stands between two levels of the formats (GET /v1/rollcall/upgrade).
type Upgrade struct {
	Level    int    `json:"level"`             // that the cluster writes; in mode ap, that the node writes which responds
	Next     int    `json:"next,omitempty"`    // the level that comes next; 0: the program knows none
	Lacking  string `json:"lacking,omitempty"` // in words, which nodes do not read the next level; empty: all do
	Finalize string `json:"finalize"`          // auto or manual: who decides that the next level is written
	// Due is when the next level is written by itself, if the nodes go on to run as they do; 0: it is not.
	Due     int64            `json:"due,omitempty"`
	Nodes   []NodeLevels     `json:"nodes"`
	Waiting []WaitingFeature `json:"waiting,omitempty"` // for a higher level
}

// NodeLevels is what a node says of its program.
type NodeLevels struct {
	ID      string `json:"id"`      // its name
	Known   bool   `json:"known"`   // it could be asked; if not, the rest is what was last known, if anything
	Version string `json:"version"` // of its program
	Oldest  int    `json:"oldest"`  // level that it reads
	Newest  int    `json:"newest"`
	Since   int64  `json:"since"`  // since when it has read the newest, restarts included
	Writes  int    `json:"writes"` // the level that it writes
}

// WaitingFeature is what needs a level that the cluster does not write yet.
type WaitingFeature struct {
	Level   int    `json:"level"`
	Version string `json:"version"` // the first that reads the level
	Brings  string `json:"brings"`  // in words
}
