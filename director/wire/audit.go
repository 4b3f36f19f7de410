package wire

import (
	"time"

	"github.com/director-kaas/kaas/director/chain"
)

// AuditEntry is an entry of the audit trail.
type AuditEntry struct {
	ID      int64     `json:"id" doc:"Place in the list."`
	Seq     int64     `json:"seq,omitempty" doc:"Number in the chain, without a gap; absent for an entry from before the chain."`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor" doc:"User or schedule; empty for a request without a valid token."`
	Action  string    `json:"action" doc:"What was tried."`
	Object  string    `json:"object" doc:"Kind/name."`
	Outcome string    `json:"outcome,omitempty" enum:"ok,refused,failed"`
	Problem string    `json:"problem,omitempty" doc:"Kind of the error."`
	Source  string    `json:"source,omitempty" doc:"Address of the client."`
	Request string    `json:"request,omitempty" doc:"Id of the request, which is also in the log."`
	Count   int64     `json:"count,omitempty" doc:"How many attempts the entry represents."`
	Diff    string    `json:"diff,omitempty" doc:"Changed lines of a document."`
	Hash    string    `json:"hash,omitempty" doc:"SHA-256 of this entry and of the hash before it."`
}

// AuditSigned is the line of an exported trail that is no entry.
type AuditSigned struct {
	Checkpoint AuditCheckpoint `json:"checkpoint"`
}

// AuditCheckpoint is a signed statement of what the audit trail was.
type AuditCheckpoint struct {
	Director  string    `json:"director" doc:"The installation."`
	Seq       int64     `json:"seq" doc:"Number of the entry that it covers, with all before it."`
	Hash      string    `json:"hash" doc:"That entry's."`
	At        time.Time `json:"at"`
	Signature []byte    `json:"signature" doc:"By the key of the trail."`
}

// AuditTrail is a part of the audit trail.
type AuditTrail struct {
	Items    []AuditEntry `json:"items"`
	Continue string       `json:"continue,omitempty" doc:"Where the list continues; absent at its end."`
}

// AuditKey verifies the audit trail without the director. It is no secret.
type AuditKey struct {
	Key string `json:"key" doc:"director-audit:INSTALLATION:KEY"`
}

// AuditVerification is what a verification of the audit trail found.
type AuditVerification struct {
	Good    bool   `json:"good" doc:"Nothing is wrong."`
	First   int64  `json:"first" doc:"Number of the first entry that was read."`
	Last    int64  `json:"last" doc:"Number of the last entry that was read."`
	Entries int64  `json:"entries" doc:"How many entries of the chain were read."`
	Before  int64  `json:"before" doc:"Entries from before the chain. Nothing proves them."`
	Signed  int64  `json:"signed" doc:"The last entry that a signed checkpoint covers."`
	Bad     int64  `json:"bad,omitempty" doc:"The first bad entry."`
	Why     string `json:"why,omitempty" doc:"What is wrong with it."`
}

// AuditEntryOf converts an entry.
func AuditEntryOf(e chain.Entry) AuditEntry {
	hash, _ := e.Hash.MarshalText() // never fails
	return AuditEntry{
		ID: e.ID, Seq: e.Seq, At: e.At.UTC(), Actor: e.Actor, Action: e.Action, Object: e.Object, Outcome: e.Outcome,
		Problem: e.Problem, Source: e.Source, Request: e.Request, Count: e.Count, Diff: e.Diff, Hash: string(hash),
	}
}

// AuditVerificationOf converts a result.
func AuditVerificationOf(r chain.Result) AuditVerification {
	return AuditVerification{
		Good: r.Good(), First: r.First, Last: r.Last, Entries: r.Entries, Before: r.Before, Signed: r.Signed,
		Bad: r.Bad, Why: r.Why,
	}
}
