package model

// Schedule is work that the director does by itself at certain times.
type Schedule struct {
	Cron     string       `json:"cron" doc:"When: minute, hour, day of month, month and day of week, such as 30 2 * * *, or @hourly, @daily, @weekly, @monthly, @every 6h." required:"true"`
	TimeZone string       `json:"timeZone,omitempty" doc:"Time zone of cron by its IANA name, such as Europe/Berlin." default:"UTC"`
	Job      ScheduledJob `json:"job" doc:"What is done." required:"true"`
	Suspend  bool         `json:"suspend,omitempty" doc:"No slot is run until this is undone. What was due meanwhile is not made up for."`
	Deadline Duration     `json:"deadline,omitempty" doc:"A slot that the director was not there for is still run if it is not longer ago than this." default:"1h" min:"1m" max:"168h"`
}

// ScheduledJob names a job of the director with its parameters.
type ScheduledJob struct {
	Name   string         `json:"name" doc:"Name of the job: prune, backup, etcd-backup, restore-drill, drift, images, certificates." required:"true"`
	Params map[string]any `json:"params,omitempty" doc:"Parameters of the job; see the page on schedules."`
}

// scheduleKind is what the model knows of the kind Schedule.
var scheduleKind = kind{
	name:    KindSchedule,
	meaning: "Work that the director does by itself at certain times; see [schedules](../use/schedules.md).",
	spec:    func(d *Document) any { return ensure(&d.Schedule) },
	validate: func(v *validator, d *Document) {
		v.match("spec.job.name", d.Schedule.Job.Name, labelPattern, "the name of a job, such as backup", 40)
	},
	columns: [][2]string{{"CRON", "cron"}, {"ZONE", "timeZone"}, {"JOB", "job.name"}},
	effects: of(Later, "no machine depends on it; the next slot is by it", "spec.cron", "spec.timeZone",
		"spec.job.name",
		"spec.job.params", "spec.suspend", "spec.deadline"),
}
