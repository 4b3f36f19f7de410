package director

import "time"

// RunStatus is the status of a run of a schedule.
type RunStatus string

// The statuses of a run. Only running moves on.
const (
	// its director works on it under a lease; when that ends without an outcome, it is interrupted.
	RunRunning     RunStatus = "running"
	RunDone        RunStatus = "done"        // the job succeeded
	RunFailed      RunStatus = "failed"      // the job returned an error
	RunInterrupted RunStatus = "interrupted" // its director died or was stopped; a repeatable job has a further attempt
	RunMissed      RunStatus = "missed"      // no director was running at its time, or the run before had not ended
)

// RunStatuses returns every status of a run in a fixed order.
func RunStatuses() []RunStatus {
	return []RunStatus{RunRunning, RunDone, RunFailed, RunInterrupted, RunMissed}
}

// ScheduleRun is the record of a slot of a schedule. UID, Slot and Attempt are its key: of all directors that see a
// slot come, one can store it.
type ScheduleRun struct {
	UID      string // of the schedule's document
	Schedule string // its name
	Slot     time.Time
	Attempt  int // from 1
	Job      string
	By       string // who asked for the run; empty for a slot of the schedule
	Status   RunStatus
	Missed   int       // how many slots a missed run covers; Slot is the last of them
	Started  time.Time // zero for missed
	Finished time.Time // zero while it runs
	Message  string    // what was done, or what went wrong
	Hint     string
	Plan     string // id of the plan that the run made; empty if none
	Owner    string // the process that runs it
	Lease    time.Time
}
