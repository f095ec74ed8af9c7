// Says when schedules run next, by the library that Kubernetes reads them with: the answers of tests/core/cron_runs.json.
//
//	go run ./cron < cases.json > answers.json
//
// A case is [schedule, time zone, seconds of the moment after which]; its answer is the seconds of the next run, 0 if there is none, and -1 if the
// schedule or the zone cannot be read.
package main

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

func next(schedule, zone string, after int64) int64 {
	place, err := time.LoadLocation(zone)
	if err != nil {
		return -1
	}
	if strings.Contains(schedule, "TZ=") {
		return -1 // the API server refuses it
	}
	found, err := cron.ParseStandard(schedule)
	if err != nil {
		return -1
	}
	if at := found.Next(time.Unix(after, 0).In(place)); !at.IsZero() {
		return at.Unix()
	}
	return 0
}

func main() {
	var cases []struct {
		Schedule, Zone string
		After          int64
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	answers := []int64{}
	for _, each := range cases {
		answers = append(answers, next(each.Schedule, each.Zone, each.After))
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}
