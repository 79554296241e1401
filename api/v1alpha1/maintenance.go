package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// Maintenance holds blocks on their nodes outside maintenance windows, and to a rate: blocks
// that would be reclaimed on the nodes that this pool rules, and blocks of this pool if their CIDR
// drains or was taken out, or the pool is deleted. A block that has begun to drain goes on when its
// window closes. A PodIPBlock that you delete begins to drain at once.
//
// +kubebuilder:validation:XValidation:rule="has(self.windows) || has(self.blocksPerHour) || has(self.ratePolicy) || has(self.policy)",message="maintenance without windows, blocksPerHour, ratePolicy and policy holds no block back, and fields of other names were dropped: write one of them, or leave maintenance out"
type Maintenance struct {
	// windows are when blocks may begin to leave; while any of them is open. Empty or absent:
	// --maintenance-windows (at any time). Always, against that flag: schedule "@hourly", duration 1h.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Windows []MaintenanceWindow `json:"windows,omitempty"`

	// blocksPerHour is the number of blocks that may begin to leave in an hour.
	// Default: --maintenance-blocks-per-hour (Unlimited). The word Unlimited is the older form of
	// ratePolicy: Unlimited.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self == 'Unlimited'",message="blocksPerHour must be a number from 1 to 1000000; for no limit set ratePolicy: Unlimited, to stop all change set paused: true"
	// +optional
	BlocksPerHour *intstr.IntOrString `json:"blocksPerHour,omitempty"`

	// ratePolicy says whether the blocks that begin to leave in an hour are limited. Limited: by
	// blocksPerHour, or by the operator's flag. Unlimited: they are not. Default: Limited. More values
	// may come; a reader treats an unknown one as Limited.
	// +optional
	RatePolicy RatePolicy `json:"ratePolicy,omitempty"`

	// policy says whether windows and blocksPerHour hold. Scheduled: they do. Unrestricted: blocks
	// may begin to leave at any time and at any rate, against all settings of this pool and of the
	// operator's flags. Default: Scheduled. More values may come; a reader treats an unknown one as
	// Scheduled without an open window.
	// +optional
	Policy MaintenancePolicy `json:"policy,omitempty"`
}

// RatePolicy says whether the blocks that begin to leave in an hour are limited.
//
// +kubebuilder:validation:Enum=Limited;Unlimited
type RatePolicy string

const (
	// RateLimited keeps to the hourly rate.
	RateLimited RatePolicy = "Limited"
	// RateUnlimited has no hourly rate.
	RateUnlimited RatePolicy = "Unlimited"
)

// MaintenancePolicy says whether maintenance windows and the hourly rate hold.
//
// +kubebuilder:validation:Enum=Scheduled;Unrestricted
type MaintenancePolicy string

const (
	// MaintenanceScheduled keeps to the windows and the rate.
	MaintenanceScheduled MaintenancePolicy = "Scheduled"
	// MaintenanceUnrestricted ignores the windows and the rate.
	MaintenanceUnrestricted MaintenancePolicy = "Unrestricted"
)

// MaintenanceWindow is a time that comes again and again. Its fields have the names used in
// CronJobs and in Karpenter's disruption budgets.
type MaintenanceWindow struct {
	// schedule is when the window opens: cron's five fields (minute, hour, day of
	// month, month, day of week), as in "0 22 * * mon-fri", or one of @hourly,
	// @daily, @weekly, @monthly, @yearly.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[^ @=]+( [^ =]+){4})$')",message="schedule must be cron's five fields (minute, hour, day of month, month, day of week) with one space between them, as in '0 22 * * mon-fri', or @hourly, @daily, @weekly, @monthly or @yearly; the time zone goes into timeZone"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('@') || self.matches('^([^ ]+ ){0}(([*?]|(0*([0-9]|[1-5][0-9]))(-(0*([0-9]|[1-5][0-9])))?)(/0*[1-9][0-9]*)?,)*([*?]|(0*([0-9]|[1-5][0-9]))(-(0*([0-9]|[1-5][0-9])))?)(/0*[1-9][0-9]*)?( |$)')",message="the first field of schedule is the minute: *, or numbers from 0 to 59, with ranges as in a-b, steps as in a-b/n, and commas between several"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('@') || self.matches('^([^ ]+ ){1}(([*?]|(0*([0-9]|1[0-9]|2[0-3]))(-(0*([0-9]|1[0-9]|2[0-3])))?)(/0*[1-9][0-9]*)?,)*([*?]|(0*([0-9]|1[0-9]|2[0-3]))(-(0*([0-9]|1[0-9]|2[0-3])))?)(/0*[1-9][0-9]*)?( |$)')",message="the second field of schedule is the hour: *, or numbers from 0 to 23, with ranges as in a-b, steps as in a-b/n, and commas between several"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('@') || self.matches('^([^ ]+ ){2}(([*?]|(0*([1-9]|[12][0-9]|3[01]))(-(0*([1-9]|[12][0-9]|3[01])))?)(/0*[1-9][0-9]*)?,)*([*?]|(0*([1-9]|[12][0-9]|3[01]))(-(0*([1-9]|[12][0-9]|3[01])))?)(/0*[1-9][0-9]*)?( |$)')",message="the third field of schedule is the day of the month: *, or numbers from 1 to 31, with ranges as in a-b, steps as in a-b/n, and commas between several"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('@') || self.matches('(?i)^([^ ]+ ){3}(([*?]|(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/0*[1-9][0-9]*)?,)*([*?]|(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/0*[1-9][0-9]*)?( |$)')",message="the fourth field of schedule is the month: *, or numbers from 1 to 12, or jan to dec, with ranges as in a-b, steps as in a-b/n, and commas between several"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('@') || self.matches('(?i)^([^ ]+ ){4}(([*?]|(0*[0-6]|sun|mon|tue|wed|thu|fri|sat)(-(0*[0-6]|sun|mon|tue|wed|thu|fri|sat))?)(/0*[1-9][0-9]*)?,)*([*?]|(0*[0-6]|sun|mon|tue|wed|thu|fri|sat)(-(0*[0-6]|sun|mon|tue|wed|thu|fri|sat))?)(/0*[1-9][0-9]*)?( |$)')",message="the fifth field of schedule is the day of the week: *, or numbers from 0 to 6, or sun to sat, with ranges as in a-b, steps as in a-b/n, and commas between several"
	// +required
	Schedule string `json:"schedule"`

	// duration is the time that it stays open.
	// +kubebuilder:validation:MaxLength=28
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be between 1m and 168h in whole h, m, s or ms, as in 30m, 6h or 1h30m"
	// +required
	Duration Duration `json:"duration"`

	// timeZone is the schedule's, by its name in the tz database, as in
	// Asia/Shanghai. Default: UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$') && self.lowerAscii() != 'local' && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="timeZone must be a name of the tz database, as in Asia/Shanghai; Local is none, as it differs from machine to machine"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}
