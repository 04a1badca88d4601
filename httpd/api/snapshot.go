package api

// Snapshot is what a snapshot says about itself.
type Snapshot struct {
	Level     int    `json:"level"`      // of the formats
	Mode      string `json:"mode"`       // cp or ap
	ClusterID string `json:"cluster_id"` // of the cluster; in mode ap the name of the datacenter
	Node      string `json:"node"`       // the node that wrote it
	Version   string `json:"version"`    // of its program
	Time      int64  `json:"time"`       // of the state, by the leader's clock
	Index     string `json:"index"`      // newest change in it, as epoch-index
	Instances int    `json:"instances"`
	Nodes     int    `json:"nodes"` // of the catalog
	Keys      int    `json:"keys"`
	Sessions  int    `json:"sessions"`
	Permits   int    `json:"permits"` // locks and semaphores
	Roles     int    `json:"roles"`
	Tokens    int    `json:"tokens"` // without their secrets
}

// Restored is what a restore did or, with a dry run, would do (PUT /v1/rollcall/snapshot).
type Restored struct {
	DryRun          bool         `json:"dry_run"`
	From            Snapshot     `json:"from"`
	ModifyIndex     uint64       `json:"modify_index"`     // of its last change; 0 with a dry run, and in mode ap
	Instances       int          `json:"instances"`        // that came back
	InstancesStayed int          `json:"instances_stayed"` // of the snapshot's, because they are registered now
	Keys            int          `json:"keys"`             // that were written
	KeysDeleted     int          `json:"keys_deleted"`
	SessionsEnded   int          `json:"sessions_ended"`
	Roles           int          `json:"roles"`          // that came back
	Tokens          int          `json:"tokens"`         // that came back
	Plan            *RestorePlan `json:"plan,omitempty"` // with a dry run
}

// RestorePlan names what a restore would do. Each list has the first 1000 names.
type RestorePlan struct {
	Instances      []string `json:"instances"`       // APP/ID, that would come back
	InstancesNewer int      `json:"instances_newer"` // registered now but not in the snapshot: they stay
	Nodes          []string `json:"nodes"`           // of the catalog, that would come back
	KeysWritten    []string `json:"keys_written"`
	KeysDeleted    []string `json:"keys_deleted"`
	SessionsEnded  []string `json:"sessions_ended"`
}
