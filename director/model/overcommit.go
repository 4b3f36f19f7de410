package model

// Overcommit is how much VMs may be promised of what their hosts have.
type Overcommit struct {
	CPUPercent    int `json:"cpuPercent,omitempty" doc:"vCPUs per 100 CPUs of the host: 400 promises each CPU four times. Zero for no bound." min:"10" max:"10000"`
	MemoryPercent int `json:"memoryPercent,omitempty" doc:"Memory of VMs in per cent of the host's: 80 keeps a reserve, more than 100 promises more than there is. Zero takes what the host itself calls free." min:"10" max:"400"`
}
