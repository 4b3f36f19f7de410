package director

import "time"

// The sources of a StreamEvent.
const (
	SourceAudit = "audit" // a person, or a schedule, did something; What is the verb
	SourcePlan  = "plan"  // a plan or a step moved; What is the kind of the event in the plan's journal
	SourceNode  = "node"  // the director saw a change of a node, or of what it sees of a cluster; What is its state
)

// KindNode is the kind of events that are about a node.
const KindNode = "Node"

// StreamEvent is one thing that happened on the director. IDs grow in the order of commits, over all directors on a
// database; they have gaps.
type StreamEvent struct {
	ID      int64
	At      time.Time
	Source  string
	Kind    string // of the thing that it is about: a kind of document, Plan or Node
	Name    string
	Cluster string // empty for what belongs to none
	What    string
	By      string
	Step    string // the rest is of plans
	Attempt int
	Seq     int64 // of the event in the plan's journal; 0 for audits
	Message string
	Hint    string
}

// StreamQuery says which part of the stream is wanted. What is empty does not narrow.
type StreamQuery struct {
	After   int64 // only what has a greater id
	Tail    int   // if After is 0: begin so many before the end
	Kinds   []string
	Cluster string
	Visible *Visible // nil for all
	Limit   int
}

// StreamPage is a part of the stream.
type StreamPage struct {
	Events []StreamEvent
	Last   int64 // the id up to which the stream was looked through: After of the next query
	// Gap is set if the stream does not hold all that came after After: it was pruned, or the database is an older one
	// than the reader has seen. What is known begins behind Gap.Through.
	Gap *StreamGap
}

// StreamGap is a part of the stream that is gone.
type StreamGap struct {
	After   int64 // what was asked for
	Through int64 // ids up to this one are gone
}
