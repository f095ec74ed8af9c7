// Karpenter with its KWOK provider, and a cloud whose machines sell out, fail and change their price: for the tests.
//
//	KUBECONFIG=... DISABLE_LEADER_ELECTION=true LAB_FILE=machines.json karpenter-lab
//
// The file is read again whenever it has changed. It is a list of machines:
//
//	{"name": "g5.xlarge", "arch": "amd64", "resources": {"cpu": "4", "nvidia.com/gpu": "1"},
//	 "offers": [{"zone": "a", "capacityType": "spot", "price": 0.4, "mode": "soldOut"}]}
//
// A mode is what becomes of launches: "soldOut" answers that there is no capacity, and hides the offer until the file changes; "hidden" is
// not offered in the first place; "fails" answers with another error, which Karpenter repeats until it gives the claim up; "slow" takes
// `seconds`. LAB_LAUNCH_TIMEOUT says after how long Karpenter gives a claim up, in place of five minutes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

type offer struct {
	Zone         string
	CapacityType string
	Price        float64
	Mode         string
	Seconds      float64
}

type machine struct {
	Name      string
	Arch      string
	Resources corev1.ResourceList
	Offers    []*offer
}

// lab is KWOK's provider, but for which machines there are and what becomes of launches.
type lab struct {
	*kwok.CloudProvider
	client   client.Client
	overlays *nodeoverlay.InstanceTypeStore
	file     string
	lock     sync.Mutex
	changed  time.Time
	machines []machine
}

// read returns what the file says now, or last said where it cannot be read.
func (l *lab) read() []machine {
	found, err := os.Stat(l.file)
	if err != nil || found.ModTime().Equal(l.changed) {
		return l.machines
	}
	var machines []machine
	text, err := os.ReadFile(l.file)
	if err == nil {
		err = json.Unmarshal(text, &machines)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab: reading the machines:", err)
		return l.machines
	}
	l.machines, l.changed = machines, found.ModTime()
	return l.machines
}

func in(key string, values ...string) *scheduling.Requirement {
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

// typeOf is one machine as Karpenter knows it, with some of its offers.
func typeOf(each machine, offers ...*offer) *cloudprovider.InstanceType {
	capacity := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	for name, amount := range each.Resources {
		capacity[name] = amount
	}
	var zones, capacityTypes []string
	made := &cloudprovider.InstanceType{Name: each.Name, Capacity: capacity, Overhead: &cloudprovider.InstanceTypeOverhead{}}
	for _, of := range offers {
		zones, capacityTypes = append(zones, of.Zone), append(capacityTypes, of.CapacityType)
		made.Offerings = append(made.Offerings, &cloudprovider.Offering{
			Price:        of.Price,
			Available:    of.Mode != "hidden",
			Requirements: scheduling.NewRequirements(in(corev1.LabelTopologyZone, of.Zone), in(v1.CapacityTypeLabelKey, of.CapacityType)),
		})
	}
	made.Requirements = scheduling.NewRequirements(
		in(corev1.LabelInstanceTypeStable, each.Name),
		in(corev1.LabelArchStable, each.Arch),
		in(corev1.LabelOSStable, string(corev1.Linux)),
		in(corev1.LabelTopologyZone, zones...),
		in(v1.CapacityTypeLabelKey, capacityTypes...),
		in(v1alpha1.InstanceSizeLabelKey, each.Name),
		in(v1alpha1.InstanceFamilyLabelKey, each.Name),
		in(v1alpha1.InstanceCPULabelKey, capacity.Cpu().String()),
		in(v1alpha1.InstanceMemoryLabelKey, capacity.Memory().String()),
	)
	return made
}

func (l *lab) GetInstanceTypes(context.Context, *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	var found []*cloudprovider.InstanceType
	for _, each := range l.read() {
		found = append(found, typeOf(each, each.Offers...))
	}
	return found, nil
}

// cheapest is the offer that a claim gets, as EC2's fleets choose: the cheapest of those that it allows.
func (l *lab) cheapest(claim *v1.NodeClaim) (machine, *offer) {
	asked := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	var of machine
	var best *offer
	for _, each := range l.read() {
		for _, one := range each.Offers {
			// Labels of a NodePool's own say nothing of the machine.
			fits := typeOf(each, one).Requirements.Intersects(asked) == nil
			if fits && one.Mode != "hidden" && (best == nil || one.Price < best.Price) {
				of, best = each, one
			}
		}
	}
	return of, best
}

func (l *lab) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	l.lock.Lock()
	of, best := l.cheapest(claim)
	if best == nil {
		l.lock.Unlock()
		return nil, cloudprovider.NewInsufficientCapacityError(errors.New("no offer is left"))
	}
	chosen := *best
	if best.Mode == "soldOut" {
		best.Mode = "hidden"
	}
	l.lock.Unlock()
	switch chosen.Mode {
	case "soldOut":
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("%s is sold out in %s", of.Name, chosen.Zone))
	case "fails":
		return nil, cloudprovider.NewCreateError(errors.New("the launch is refused"), "LaunchRefused", "the launch is refused")
	case "slow":
		time.Sleep(time.Duration(chosen.Seconds * float64(time.Second)))
	}
	made := typeOf(of, &chosen)
	asked := claim.DeepCopy()
	// KWOK's nodes have what was asked for; these have what the machine has, or limits would count too little.
	asked.Spec.Resources.Requests = made.Capacity
	for place := range asked.Spec.Requirements {
		if asked.Spec.Requirements[place].Key == corev1.LabelInstanceTypeStable {
			asked.Spec.Requirements[place].Operator, asked.Spec.Requirements[place].Values = corev1.NodeSelectorOpIn, []string{of.Name}
		}
	}
	created, err := kwok.NewCloudProvider(ctx, l.client, []*cloudprovider.InstanceType{made}).Create(ctx, asked)
	if err != nil || !options.FromContext(ctx).FeatureGates.NodeOverlay {
		return created, err
	}
	// As AWS's provider does: the claim says at once what NodeOverlays tell of the machine, the node only once somebody publishes it.
	told, err := l.overlays.Apply(claim.Labels[v1.NodePoolLabelKey], made)
	if err != nil {
		return nil, err
	}
	created.Status.Capacity, created.Status.Allocatable = told.Capacity, told.Allocatable()
	return created, nil
}

func main() {
	if limit, err := time.ParseDuration(os.Getenv("LAB_LAUNCH_TIMEOUT")); err == nil {
		lifecycle.LaunchTimeout = limit
	}
	ctx, op := operator.NewOperator()
	plain := &lab{CloudProvider: kwok.NewCloudProvider(ctx, op.GetClient(), nil), client: op.GetClient(), overlays: op.InstanceTypeStore, file: os.Getenv("LAB_FILE")}
	provider := overlay.Decorate(plain, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), provider)
	made := controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, provider, plain, cluster, op.InstanceTypeStore)
	op.WithControllers(ctx, made...).Start(ctx)
}
