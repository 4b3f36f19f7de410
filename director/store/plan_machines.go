package store

import (
	"context"
	"encoding/json"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// kindMakesVM is the kind of the steps that make VMs; the tests of director/vms hold it to be step.VMEnsure.
const kindMakesVM = "vm.ensure"

type planMachineRow struct{ MachineID, PlanID, StepID string }

func (planMachineRow) TableName() string { return "plan_machines" }

// Making is a step of a plan that makes the VM of a machine.
type Making struct{ Plan, Step string }

// machinesOf returns the rows of the plan: one for each of its nodes, and one for each step that makes a VM.
func machinesOf(id string, c *plan.Content) ([]planMachineRow, error) {
	type machine struct {
		ID string
	}
	seen := map[planMachineRow]bool{}
	var rows []planMachineRow
	add := func(m machine, step string) {
		if r := (planMachineRow{m.ID, id, step}); m.ID != "" && !seen[r] {
			seen[r] = true
			rows = append(rows, r)
		}
	}
	if len(c.Facts) > 0 {
		var facts struct {
			Nodes []machine `json:"nodes"`
		}
		if err := json.Unmarshal(c.Facts, &facts); err != nil {
			return nil, err
		}
		for _, m := range facts.Nodes {
			add(m, "")
		}
	}
	for _, s := range c.Steps {
		if s.Kind != kindMakesVM {
			continue
		}
		var params struct {
			Machine machine `json:"machine"`
		}
		if err := json.Unmarshal(s.Params, &params); err != nil {
			return nil, err
		}
		add(params.Machine, s.ID)
	}
	return rows, nil
}

// addPlanMachines writes which machines the plan names.
func (t *planTx) addPlanMachines(id string, c *plan.Content) error {
	rows, err := machinesOf(id, c)
	if err != nil {
		return director.Errorf(
			director.KindInternal, "store.plan", "the machines of plan %s cannot be read: %w", id, err,
		)
	}
	if len(rows) == 0 {
		return nil
	}
	// two directors may write those of an older plan
	return t.db.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(rows, 100).Error
}

// unindexed returns the plans of older directors whose machines are not written yet.
func unindexed(db *gorm.DB) ([]planRow, error) {
	var rows []planRow
	err := db.Select("id", "phase").Where("indexed = 0").Order("id").Find(&rows).Error
	return rows, dbError("store.plan_machines", "plans", err)
}

// indexPlan writes the machines of an older director's plan. A finished plan that cannot be read names none.
func (t *planTx) indexPlan(row planRow) error {
	var texts []string
	if err := t.db.Model(&contentRow{}).Where("plan_id = ?", row.ID).Pluck("content", &texts).Error; err != nil {
		return dbError("store.plan_machines", "plan "+row.ID, err)
	}
	var c plan.Content
	var err error
	if len(texts) > 0 {
		err = json.Unmarshal([]byte(texts[0]), &c)
	}
	if err == nil {
		err = t.addPlanMachines(row.ID, &c)
	}
	if err != nil && !over(plan.Status(row.Status)) {
		return dbError("store.plan_machines", "plan "+row.ID, err)
	}
	return dbError(
		"store.plan_machines", "plan "+row.ID,
		t.db.Model(&planRow{}).Where("id = ?", row.ID).Update("indexed", 1).Error,
	)
}

// IndexPlans writes the machines of plans that older directors made. Each plan is a transaction of its own, so that
// writers wait for one at most.
func (s *planStore) IndexPlans(ctx context.Context) error {
	rows, err := unindexed(s.read.WithContext(ctx))
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := s.Update(ctx, func(tx *Tx) error { return tx.indexPlan(r) }); err != nil {
			return err
		}
	}
	return nil
}

// Makings returns the steps of plans that are not over for good, and that make the machine; those of the newest plan
// first.
func (t *planTx) Makings(machine string) ([]Making, error) {
	older, err := unindexed(t.db)
	if err != nil {
		return nil, err
	}
	for _, r := range older {
		if err := t.indexPlan(r); err != nil {
			return nil, err
		}
	}
	var out []Making
	err = t.db.Model(&planMachineRow{}).Joins("JOIN plans ON plans.id = plan_machines.plan_id").
		Where(
			"plan_machines.machine_id = ? AND plan_machines.step_id <> '' AND plans.phase IN ?", machine, unfinished(),
		).
		Order("plans.created_at DESC, plans.id, plan_machines.step_id").
		Select("plan_machines.plan_id AS plan, plan_machines.step_id AS step").Scan(&out).Error
	return out, dbError("store.makings", "plans", err)
}

// PlanWithMachine returns the id of the newest plan of any status that has the machine among its nodes, or "".
func (s *planStore) PlanWithMachine(ctx context.Context, machine string) (string, error) {
	if err := s.IndexPlans(ctx); err != nil {
		return "", err
	}
	var ids []string
	err := s.read.WithContext(ctx).Model(&planMachineRow{}).Joins("JOIN plans ON plans.id = plan_machines.plan_id").
		Where("plan_machines.machine_id = ? AND plan_machines.step_id = ''", machine).
		Order("plans.created_at DESC, plans.id").Limit(1).Pluck("plans.id", &ids).Error
	if err != nil || len(ids) == 0 {
		return "", dbError("store.plan_with_machine", "plans", err)
	}
	return ids[0], nil
}
