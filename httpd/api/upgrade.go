package api

// Upgrade shows where a cluster stands between two levels of the formats (GET /v1/rollcall/upgrade).
type Upgrade struct {
	Level    int    `json:"level"`             // that the cluster writes; in mode ap, that the responding node writes
	Next     int    `json:"next,omitempty"`    // the next level; 0 if the program knows none
	Lacking  string `json:"lacking,omitempty"` // which nodes do not read the next level, in words; empty if all do
	Finalize string `json:"finalize"`          // auto or manual: who raises the written level
	// Due is when the next level is written automatically if the nodes keep running as they do; 0 if it is not.
	Due     int64            `json:"due,omitempty"`
	Nodes   []NodeLevels     `json:"nodes"`
	Waiting []WaitingFeature `json:"waiting,omitempty"` // for a higher level
}

// NodeLevels is what a node says about its program.
type NodeLevels struct {
	ID      string `json:"id"`      // its name
	Known   bool   `json:"known"`   // it could be asked; if not, the rest is the last known state, if any
	Version string `json:"version"` // of its program
	Oldest  int    `json:"oldest"`  // level that it reads
	Newest  int    `json:"newest"`
	Since   int64  `json:"since"`  // since when it has read the newest, restarts included
	Writes  int    `json:"writes"` // the level that it writes
}

// WaitingFeature needs a level that the cluster does not write yet.
type WaitingFeature struct {
	Level   int    `json:"level"`
	Version string `json:"version"` // the first program version that reads the level
	Brings  string `json:"brings"`  // in words
}
