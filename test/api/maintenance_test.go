package api

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

func TestPoolMaintenance(t *testing.T) {
	const (
		schedule = "schedule must be cron's five fields"
		duration = "duration must be between 1m and 168h"
		zone     = "timeZone must be a name of the tz database"
	)
	tests := map[string]struct{ maintenance, want string }{
		"all of it":            {"{windows: [{schedule: '0 22 * * mon-fri', duration: 6h, timeZone: Asia/Shanghai}], blocksPerHour: 120, policy: Unrestricted}", ""},
		"words, lists, steps":  {"{windows: [{schedule: '@daily', duration: 1m}, {schedule: '*/5 1,2 1-7 * sun', duration: 168h, timeZone: Etc/GMT+8}]}", ""},
		"nothing":              {"{}", "maintenance without windows, blocksPerHour, ratePolicy and policy holds no block back"},
		"always":               {"{windows: [{schedule: '@hourly', duration: 1h}]}", ""},
		"two spaces":           {"{windows: [{schedule: '0  22 * * *', duration: 6h}]}", schedule},
		"a sign":               {"{windows: [{schedule: '+5 22 * * *', duration: 6h}]}", "the first field of schedule is the minute"},
		"an empty item":        {"{windows: [{schedule: '1,,2 22 * * *', duration: 6h}]}", "the first field of schedule is the minute"},
		"a range of all":       {"{windows: [{schedule: '*-5 22 * * *', duration: 6h}]}", "the first field of schedule is the minute"},
		"a word in capitals":   {"{windows: [{schedule: '@Daily', duration: 6h}]}", schedule},
		"a folder twice":       {"{windows: [{schedule: '0 22 * * *', duration: 6h, timeZone: Asia//Shanghai}]}", zone},
		"too many letters":     {"{windows: [{schedule: '" + strings.Repeat("1,", 60) + "1 22 * * *', duration: 6h}]}", "spec.maintenance.windows[0].schedule: Too long"},
		"no rate":              {"{ratePolicy: Unlimited}", ""},
		"no rate, older":       {"{blocksPerHour: Unlimited}", ""},
		"rate of 0":            {"{blocksPerHour: 0}", "blocksPerHour must be a number from 1 to 1000000; for no limit set ratePolicy: Unlimited, to stop all change set paused: true"},
		"rate of 120, quoted":  {"{blocksPerHour: '120'}", "spec.maintenance.blocksPerHour"},
		"rate too high":        {"{blocksPerHour: 1000001}", "spec.maintenance.blocksPerHour"},
		"another policy":       {"{policy: Never}", "spec.maintenance.policy: Unsupported value"},
		"too many windows":     {"{windows: [" + strings.Repeat("{schedule: '@daily', duration: 1h}, ", 17) + "]}", "spec.maintenance.windows: Too many: 17"},
		"no schedule":          {"{windows: [{duration: 6h}]}", "spec.maintenance.windows[0].schedule: Required value"},
		"no duration":          {"{windows: [{schedule: '0 22 * * *'}]}", "spec.maintenance.windows[0].duration: Required value"},
		"four fields":          {"{windows: [{schedule: '0 22 * *', duration: 6h}]}", schedule},
		"six fields":           {"{windows: [{schedule: '0 0 22 * * *', duration: 6h}]}", schedule},
		"every":                {"{windows: [{schedule: '@every 1h', duration: 6h}]}", schedule},
		"a zone in it":         {"{windows: [{schedule: 'TZ=UTC 22 * * *', duration: 6h}]}", schedule},
		"too short":            {"{windows: [{schedule: '0 22 * * *', duration: 59s}]}", duration},
		"too long":             {"{windows: [{schedule: '0 22 * * *', duration: 168h1s}]}", duration},
		"duration in words":    {"{windows: [{schedule: '0 22 * * *', duration: all night}]}", duration},
		"local":                {"{windows: [{schedule: '0 22 * * *', duration: 6h, timeZone: Local}]}", zone},
		"a path":               {"{windows: [{schedule: '0 22 * * *', duration: 6h, timeZone: ../../etc/passwd}]}", zone},
		"steps of all, names":  {"{windows: [{schedule: '*/10 0-23/2 01,15-31/7 JAN-mar,12 ?', duration: 6h, timeZone: UTC}]}", ""},
		"minute 99":            {"{windows: [{schedule: '99 * * * *', duration: 6h}]}", "the first field of schedule is the minute"},
		"hour 24":              {"{windows: [{schedule: '0 1,24 * * *', duration: 6h}]}", "the second field of schedule is the hour"},
		"day 0":                {"{windows: [{schedule: '0 0 0 * *', duration: 6h}]}", "the third field of schedule is the day of the month"},
		"day 32":               {"{windows: [{schedule: '0 0 1-32 * *', duration: 6h}]}", "the third field of schedule is the day of the month"},
		"month 13":             {"{windows: [{schedule: '0 0 * 13 *', duration: 6h}]}", "the fourth field of schedule is the month"},
		"weekday 7":            {"{windows: [{schedule: '0 0 * * 7', duration: 6h}]}", "the fifth field of schedule is the day of the week"},
		"weekday in full":      {"{windows: [{schedule: '0 0 * * monday', duration: 6h}]}", "the fifth field of schedule is the day of the week"},
		"step of 0":            {"{windows: [{schedule: '*/0 * * * *', duration: 6h}]}", "the first field of schedule is the minute"},
		"no number":            {"{windows: [{schedule: '0, * * * *', duration: 6h}]}", "the first field of schedule is the minute"},
		"a date, in code only": {"{windows: [{schedule: '0 0 30 2 *', duration: 6h}]}", ""},
		"a zone that is none":  {"{windows: [{schedule: '0 22 * * *', duration: 6h, timeZone: Mars/Phobos}]}", "unknown time zone Mars/Phobos evaluating rule: " + zone},
		"a zone of old":        {"{windows: [{schedule: '0 22 * * *', duration: 6h, timeZone: US/Pacific}]}", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := object(t, "PodIPPool", "pool", ipv4Pool+", maintenance: "+tc.maintenance+"}")
			_, err := resource(t, "podippools").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, tc.want)
			// The operator's flags take no window that a pool may not have: a pool's status shows them.
			pool := &v1alpha1.PodIPPool{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pool) != nil {
				return // not even of the type
			}
			_, flag := crd.WindowsFrom(pool.Spec.Maintenance.Windows, field.NewPath("windows"))
			if flag == nil && strings.Contains(fmt.Sprint(err), "spec.maintenance.windows") {
				t.Errorf("a flag may have it: %v", err)
			}
		})
	}
}
