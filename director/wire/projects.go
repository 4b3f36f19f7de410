package wire

// ProjectImages is how much of its quota the images of a project use.
type ProjectImages struct {
	Project    string `json:"project"`
	UsedBytes  int64  `json:"used_bytes" doc:"What its images have in the director's registry. What they share counts once."`
	QuotaBytes int64  `json:"quota_bytes" doc:"What they may have, spec.quota.images of the project; 0 means no limit."`
}
