package api

import (
	"fmt"
	"maps"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/wire"
)

// values are what fields of the description can have.
type values struct {
	of     []any
	fields []string // each SCHEMA.FIELD
}

// fewValues are the fields that have one of a few values, from where the program has them.
func fewValues() []values {
	return []values{
		{valuesOf(plan.Statuses()), []string{
			"Plan.status", "PlanSummary.status", "PlanWait.status", "PhasePlan.status", "Events.status", "End.status",
			"Matrix.status", "Holder.status", "Cluster.plan_status", "DirectorVM.plan_status",
			"CampaignCluster.plan_status",
		}},
		{valuesOf(plan.StepStatuses()), []string{
			"Step.status", "MatrixCell.status", "MatrixRow.status", "PhaseNode.status",
		}},
		{valuesOf(plan.Operations()), []string{
			"Plan.operation", "PlanSummary.operation", "PlanWait.operation", "PhasePlan.operation",
			"PreviewPlan.operation", "Holder.operation", "Checked.operation", "CampaignLook.operation",
			"CampaignTarget.operation",
		}},
		{valuesOf(plan.Verbs()), []string{"Effect.verb", "EffectGroup.verb"}},
		{valuesOf(step.Kinds()), []string{"Step.kind", "StepGroup.kind"}},
		{valuesOf(model.Kinds()), []string{"Document.kind", "Change.kind", "ModelRef.kind", "PlanDocument.kind"}},
		{valuesOf(director.Roles()), []string{
			"Machine.role", "PlanMachine.role", "Node.role", "FleetNode.role", "NetworkAddress.role",
		}},
		{valuesOf(director.MachineStates()), []string{
			"Machine.state", "Node.state", "FleetNode.state", "NetworkAddress.state", "VM.state",
		}},
		{valuesOf(director.UserRoles()), []string{"User.role", "Me.role", "Session.role"}},
		{valuesOf(director.RunStatuses()), []string{"ScheduleRun.status"}},
		{valuesOf(director.CertificateSources()), []string{"SeenCertificate.source", "CertificateFinding.source"}},
		{valuesOf(ledger.Kinds()), []string{"Finding.kind"}},
		{valuesOf(ledger.DiskStates()), []string{"Disk.state"}},
		{valuesOf(director.Kinds()), []string{"Problem.kind"}},
	}
}

func valuesOf[T ~string](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// completeDescription adds what registrations do not say.
func completeDescription(api huma.API) {
	describeValues(api.OpenAPI().Components.Schemas)
	describeProblems(api)
}

// describeValues writes those values into the description. It panics if there is no such field.
func describeValues(all huma.Registry) {
	schemas := all.Map()
	for _, v := range fewValues() {
		for _, at := range v.fields {
			name, field, _ := strings.Cut(at, ".")
			schema := schemas[name]
			if schema == nil || schema.Properties[field] == nil {
				panic(fmt.Sprintf("the description has no field %s", at))
			}
			schema.Properties[field].Enum = v.of
			schema.Properties[field].PrecomputeMessages()
		}
	}
}

// describeProblems says of every operation that any other answer is a problem.
func describeProblems(api huma.API) {
	problems := map[string]*huma.MediaType{"application/problem+json": {Schema: schemaOf[wire.Problem](api)}}
	for _, path := range api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{path.Get, path.Put, path.Post, path.Delete, path.Patch} {
			if op == nil {
				continue
			}
			if op.Responses["default"] == nil {
				op.Responses["default"] = &huma.Response{
					Description: "Any other problem.", Content: map[string]*huma.MediaType{},
				}
			}
			maps.Copy(op.Responses["default"].Content, problems)
		}
	}
}
